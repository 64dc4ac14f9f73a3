"""The bank-conflict explorer: what an access costs, and which swizzles would fix it.

from ladder import bank
found = bank.explore("ldmatrix.x4", "(lane % 16) * 256 + lane / 16 * 16")
found.service.conflicts, found.remedies
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ladder.counts.banks.access import LANES, MATRIX_OPS, ROW_BYTES, Access, AccessError, Service, serve
from ladder.counts.banks.expression import Expression

#: The lanes' addresses: an expression in ``lane``, a function of the lane, or 32 values.
Addresses = str | Callable[[int], int | None] | Sequence[int | None]

#: Element sizes, in bytes, for which a swizzle can be written.
ELEMENT_SIZES = (1, 2, 4, 8, 16)
#: Of an address: the highest bit that a swizzle may start at, and its largest shift.
_HIGHEST = 24

_OPS = {"ld": "ld", "st": "st", "ldmatrix": "ldmatrix", "stmatrix": "stmatrix", "atom": "atom.add", "red": ""}
_PLAIN_WORDS = re.compile(
    r"shared(::cta)?|sync|aligned|m8n8|trans|b16|volatile|weak|relaxed|cta|gpu|sys|add|cas|u32|b32"
)


@dataclass(frozen=True, order=True)
class Swizzle:
    """XORs ``bits`` bits of an address, from bit ``base + shift`` on, into those from bit ``base`` on.

    Same as ``swizzle<B, M, S>`` of CuTe and of the stages. It works on byte addresses unless stated
    otherwise.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if not (0 <= self.bits <= 16 and 0 <= self.base <= _HIGHEST and self.bits <= self.shift <= _HIGHEST):
            raise AccessError(
                f"swizzle {self.bits},{self.base},{self.shift}: B bits from bit M + S into those from bit M",
                "It needs B <= S, so that no bit is both moved and changed.",
            )

    @classmethod
    def parse(cls, text: str) -> Swizzle:
        """Parses ``B,M,S``. Raises :class:`AccessError`."""
        match = re.fullmatch(r"\s*<?\s*(\d{1,9})\s*,\s*(\d{1,9})\s*,\s*(\d{1,9})\s*>?\s*", text)
        if match is None:
            raise AccessError(f"{text!r} is not B,M,S", "For example --swizzle 3,4,3")
        return cls(int(match[1]), int(match[2]), int(match[3]))

    def __call__(self, address: int) -> int:
        mask = ((1 << self.bits) - 1) << self.base
        return address ^ (address >> self.shift & mask)

    def in_elements(self, element_bytes: int) -> Swizzle | None:
        """The same permutation on element indices, or None if it would split elements."""
        base = self.base - (element_bytes.bit_length() - 1)
        return None if base < 0 else replace(self, base=base)

    def __str__(self) -> str:
        return f"<{self.bits}, {self.base}, {self.shift}>"


@dataclass(frozen=True)
class Exploration:
    """An access, how it is served, and the swizzles (of byte addresses) that remove all its conflicts.

    ``remedies`` is empty if there are no conflicts or no swizzle removes them all. In the latter case
    ``best`` is the swizzle that leaves the fewest conflicts, with that number, if it leaves fewer than there
    were.
    """

    text: str
    swizzle: Swizzle | None
    service: Service
    remedies: tuple[Swizzle, ...]
    best: tuple[Swizzle, int] | None

    @property
    def access(self) -> Access:
        return self.service.access


def explore(
    op: str,
    addresses: Addresses,
    *,
    width: int | None = None,
    swizzle: Swizzle | None = None,
    active: int = 2**LANES - 1,
) -> Exploration:
    """Counts one access of a warp and searches for swizzles that remove its conflicts.

    ``op`` is ``ld``, ``st``, ``ldmatrix``, ``stmatrix``, ``atom.add`` or ``atom.cas``, or a whole PTX opcode
    (``ld.shared.v2.f32``, ``ldmatrix.sync.aligned.m8n8.x4.shared.b16``); ``width``, in bytes per lane or 8x8
    tiles, is for opcodes that do not state it. ``addresses`` are byte addresses in shared memory; for a tile
    aligned to 128 bytes, offsets will do. ``active`` is the mask of active lanes.

    Raises :class:`AccessError` and :class:`ExpressionError`.
    """
    name, parsed_width = parse_op(op, width)
    plain = Access(name, parsed_width, _masked(lane_addresses(addresses), active))
    service = serve(swizzled(plain, swizzle) if swizzle else plain)
    remedies: tuple[Swizzle, ...] = ()
    best = None
    if service.conflicts:
        remedies, best = find_swizzles(plain)
        if best is not None and best[1] >= service.conflicts:
            best = None
    text = addresses if isinstance(addresses, str) else ""
    return Exploration(text, swizzle, service, remedies, best)


def parse_op(text: str, width: int | None = None) -> tuple[str, int]:
    """Parses an opcode such as ``ld.v4.f32`` into (op, width); the width defaults to 4 bytes or 4 tiles."""
    first, *modifiers = text.split(".")
    op = _OPS.get(first, "")
    if op == "atom.add" and "cas" in modifiers:
        op = "atom.cas"
    if not op:
        raise AccessError(
            f"{text!r} is no access that is covered", "There is ld, st, ldmatrix, stmatrix, atom."
        )
    elements, element_bytes, tiles = 1, None, None
    for modifier in modifiers:
        if match := re.fullmatch(r"v([248])", modifier):
            elements = int(match[1])
        elif op in MATRIX_OPS and (match := re.fullmatch(r"x([124])", modifier)):
            tiles = int(match[1])
        elif op not in MATRIX_OPS and (match := re.fullmatch(r"[busf](8|16|32|64|128)", modifier)):
            element_bytes = int(match[1]) // 8
        elif op not in MATRIX_OPS and modifier in ("bf16", "f16x2", "bf16x2"):
            element_bytes = 4 if modifier.endswith("x2") else 2
        elif not _PLAIN_WORDS.fullmatch(modifier):
            raise AccessError(f"{text!r} has {modifier!r}, which means nothing here")
    said = tiles if op in MATRIX_OPS else None if element_bytes is None else elements * element_bytes
    if width is not None and said is not None and width != said:
        raise AccessError(f"{text!r} says {said} and the width {width}")
    if width is None and said is None and elements > 1:
        said = 4 * elements
    return op, width if width is not None else said if said is not None else 4


def lane_addresses(addresses: Addresses) -> tuple[int | None, ...]:
    """Evaluates the addresses of the 32 lanes. Raises :class:`AccessError` and :class:`ExpressionError`."""
    if isinstance(addresses, str):
        expression = Expression(addresses)
        return tuple(expression(lane=lane) for lane in range(LANES))
    if callable(addresses):
        return tuple(addresses(lane) for lane in range(LANES))
    return tuple(addresses)


def swizzled(access: Access, swizzle: Swizzle) -> Access:
    """Returns the access with its addresses swizzled."""
    addresses = (None if address is None else swizzle(address) for address in access.addresses)
    return replace(access, addresses=tuple(addresses))


def find_swizzles(access: Access) -> tuple[tuple[Swizzle, ...], tuple[Swizzle, int] | None]:
    """Returns the swizzles of the fewest bits that leave no conflict, or else the one that leaves the fewest.

    Candidates start at the access's width, to keep each lane's bytes together, and change only the address
    bits that select the bank, since no others can help.
    """
    remedies: list[Swizzle] = []
    best: tuple[Swizzle, int] | None = None
    for swizzle in _candidates(access):
        conflicts = serve(swizzled(access, swizzle)).conflicts
        if conflicts == 0:
            remedies.append(swizzle)
        if best is None or conflicts < best[1]:
            best = (swizzle, conflicts)
    if remedies:
        fewest = min(remedies).bits
        return tuple(swizzle for swizzle in remedies if swizzle.bits == fewest), None
    return (), best


def _candidates(access: Access) -> Iterator[Swizzle]:
    known = [address for address in access.addresses if address is not None]
    top = max(known, default=0).bit_length()
    lowest = max(access.bytes, 4).bit_length() - 1
    bank_bits = ROW_BYTES.bit_length() - 1
    for bits in range(1, bank_bits - lowest + 1):
        for base in range(lowest, bank_bits - bits + 1):
            for shift in range(bits, min(_HIGHEST, max(bits, top - base)) + 1):
                yield Swizzle(bits, base, shift)


def _masked(addresses: tuple[int | None, ...], active: int) -> tuple[int | None, ...]:
    return tuple(address if active >> lane & 1 else None for lane, address in enumerate(addresses))
