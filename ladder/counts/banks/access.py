"""One warp's access to shared memory, and how the banks serve it: which lanes share a pass, and which word
each bank delivers in each wavefront. All costs come from the emulator's bank model, which also counts whole
kernels; this module models nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ladder.errors import LadderError

LANES = 32
BANKS = 32
BANK_BYTES = 4
ROW_BYTES = BANKS * BANK_BYTES

#: The kinds of access that the model covers, with the widths of each: bytes per lane, or 8x8 tiles.
WIDTHS = {
    "ld": (1, 2, 4, 8, 16),
    "st": (1, 2, 4, 8, 16),
    "ldmatrix": (1, 2, 4),
    "stmatrix": (1, 2, 4),
    "atom.add": (4,),
    "atom.cas": (4,),
}
MATRIX_OPS = ("ldmatrix", "stmatrix")
_MATRIX_ROW_BYTES = 16


class AccessError(LadderError, ValueError):
    """The addresses, lanes or width fit no instruction."""


@dataclass(frozen=True)
class Access:
    """``op`` of ``width`` bytes per lane (or of ``width`` 8x8 tiles), with the byte addresses of 32 lanes.

    A lane whose address is None is inactive. Raises :class:`AccessError` if the hardware would refuse it.
    """

    op: str
    width: int
    addresses: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if self.op not in WIDTHS:
            raise AccessError(f"{self.op!r} is none of {', '.join(WIDTHS)}")
        if self.width not in WIDTHS[self.op]:
            unit = "tiles" if self.op in MATRIX_OPS else "bytes"
            widths = ", ".join(map(str, WIDTHS[self.op]))
            raise AccessError(f"{self.op} has {widths} {unit}, not {self.width}")
        if len(self.addresses) != LANES:
            raise AccessError(f"a warp has {LANES} lanes; there are {len(self.addresses)} addresses")
        for lane in self.lanes:
            address = self.addresses[lane]
            assert address is not None
            if not 0 <= address < 2**32 - 16:
                raise AccessError(f"lane {lane}'s address is {address}, which is outside shared memory")
            if address % self.bytes:
                raise AccessError(
                    f"lane {lane}'s address {address} is not a multiple of {self.bytes}",
                    f"An access of {self.bytes} bytes must be aligned to {self.bytes} bytes.",
                )
        if self.op in MATRIX_OPS and self.lanes != tuple(range(8 * self.width)):
            raise AccessError(
                f"{self} takes the addresses of its rows from the lanes 0 to {8 * self.width - 1}; "
                "none of them can be left out"
            )

    @property
    def bytes(self) -> int:
        """The number of bytes accessed at each address."""
        return _MATRIX_ROW_BYTES if self.op in MATRIX_OPS else self.width

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes whose addresses are used, in order."""
        given = LANES if self.op not in MATRIX_OPS else 8 * self.width
        return tuple(lane for lane in range(given) if self.addresses[lane] is not None)

    def __str__(self) -> str:
        if self.op in MATRIX_OPS:
            return f"{self.op}.x{self.width}"
        return f"{self.op}, {self.width} byte{'s' if self.width > 1 else ''} a lane"

    def banks(self, lane: int) -> range:
        """The banks that hold a lane's bytes."""
        address = self.addresses[lane]
        assert address is not None
        first = address // BANK_BYTES % BANKS
        return range(first, first + max(1, self.bytes // BANK_BYTES))


@dataclass(frozen=True)
class Cell:
    """The data at ``address`` that its banks deliver in one wavefront, and all ``lanes`` that read it."""

    wavefront: int
    first_bank: int
    banks: int
    address: int
    lanes: tuple[int, ...]


@dataclass(frozen=True)
class Pass:
    """Lanes served together in ``wavefronts`` steps; each step beyond the first is a conflict."""

    lanes: tuple[int, ...]
    wavefronts: int
    cells: tuple[Cell, ...]

    def demand(self) -> list[int]:
        """For each bank, the number of distinct words that lanes read from it."""
        wanted = [0] * BANKS
        for cell in self.cells:
            for bank in range(cell.first_bank, cell.first_bank + cell.banks):
                wanted[bank] += 1
        return wanted


@dataclass(frozen=True)
class Service:
    """How an access is served. ``conflicts`` is its contribution to the hardware's counter."""

    access: Access
    wavefronts: int
    conflicts: int
    ideal: int
    passes: tuple[Pass, ...]


def serve(access: Access) -> Service:
    """Asks the bank model for the passes, and works out which lanes each wavefront serves."""
    from ladder.run import emulator

    # ldmatrix and stmatrix ignore the addresses of lanes that name no row.
    lanes = set(access.lanes)
    addresses = [address if lane in lanes else None for lane, address in enumerate(access.addresses)]
    cost = emulator.shared_access(access.op, access.width, addresses)
    passes = emulator.shared_passes(access.op, access.width, addresses)
    return Service(
        access,
        cost.wavefronts,
        cost.conflicts,
        cost.ideal,
        tuple(_pass(access, mask, wavefronts) for mask, wavefronts in passes),
    )


def _pass(access: Access, mask: int, wavefronts: int) -> Pass:
    lanes = tuple(lane for lane in access.lanes if mask >> lane & 1)
    unit_bytes = max(access.bytes, BANK_BYTES)
    # Atomics on one word are serialised; every other access delivers a word to all its lanes at once.
    is_atomic = access.op.startswith("atom")
    wanted: dict[tuple[int, int], list[int]] = {}
    for lane in lanes:
        address = access.addresses[lane]
        assert address is not None
        wanted.setdefault((address // unit_bytes, lane if is_atomic else 0), []).append(lane)
    given = [0] * BANKS
    cells = []
    for (unit, _), served in wanted.items():
        bank = unit * unit_bytes // BANK_BYTES % BANKS
        cells.append(Cell(given[bank], bank, unit_bytes // BANK_BYTES, unit * unit_bytes, tuple(served)))
        given[bank] += 1
    if max(given, default=0) != wavefronts:
        raise AssertionError(f"{max(given)} wavefronts laid out, {wavefronts} in the model: {access}")
    return Pass(lanes, wavefronts, tuple(cells))


def parse_mask(text: str) -> int:
    """Parses a lane mask: ``0xffff``, ``0b101``, or lanes and ranges like ``0-15,20``.

    Raises :class:`AccessError`.
    """
    try:
        if text.startswith(("0x", "0b")):
            mask = int(text, 0)
        else:
            mask = 0
            for part in text.split(","):
                first, _, last = part.partition("-")
                lanes = range(int(first), int(last or first) + 1)
                if not lanes or lanes[-1] >= LANES:
                    raise ValueError
                mask |= sum(1 << lane for lane in lanes)
    except ValueError:
        raise AccessError(
            f"{text!r} is no set of lanes", "A mask like 0x0000ffff, or lanes like 0-15,20."
        ) from None
    if not 0 < mask < 1 << LANES:
        raise AccessError(f"{text} has none of the lanes 0 to 31, or more than these")
    return mask


def lanes_text(lanes: Sequence[int]) -> str:
    """Writes lanes as ranges: ``0-7, 12``."""
    runs: list[list[int]] = []
    for lane in lanes:
        if runs and lane == runs[-1][-1] + 1:
            runs[-1].append(lane)
        else:
            runs.append([lane])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
