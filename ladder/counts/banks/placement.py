"""Where the 16-byte chunks of a tile lie in shared memory: an operand of wgmma, or a box of TMA, before and
after its swizzle. All addresses come from the emulator, which carries out products and boxes with them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ladder.counts.banks.access import LANES, ROW_BYTES, Access, AccessError, serve

CHUNK_BYTES = 16
#: wgmma takes two chunks along k, by 8 rows; 8 rows of a chunk are a core matrix, which a wavefront reads.
CHUNKS_OF_K, ROWS_OF_CORE = 2, 8
MAJORS = ("k", "mn")
SWIZZLES = (0, 32, 64, 128)
#: Sizes of wgmma's elements, in bytes; MN-major is for those of 2 alone.
OPERAND_ELEMENTS = (1, 2, 4)
_MOST_ROWS = 256
_SHARED_BYTES = 1 << 18  # what a descriptor's 14 bits reach
_FIELD = 0x3FFF
_MODES = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Chunk:
    """16 bytes of a tile. ``row`` and ``column`` are those of its first element; rows run through memory.

    ``plain`` is the address that it would have without the swizzle, ``address`` the one it has.
    """

    row: int
    column: int
    plain: int
    address: int


@dataclass(frozen=True)
class Placement:
    """A tile in shared memory, chunk by chunk.

    ``facts`` says in words what it is, ``axes`` what its rows and columns are. ``wavefront`` are the chunks,
    up to eight, that are wanted at once: a core matrix, or as much of a box.
    """

    title: str
    facts: tuple[str, ...]
    axes: str
    swizzle: int
    chunks: tuple[Chunk, ...]
    wavefront: tuple[Chunk, ...]

    def wavefronts(self, *, plain: bool = False) -> int:
        """The wavefronts that the chunks of ``wavefront`` take where they lie, or would take unswizzled."""
        places = [chunk.plain if plain else chunk.address for chunk in self.wavefront]
        addresses = (*places, *(None,) * (LANES - len(places)))
        return serve(Access("ld", CHUNK_BYTES, addresses)).wavefronts

    def banks(self, *, plain: bool = False) -> tuple[int, ...]:
        """The banks that hold the chunks of ``wavefront``, in their order, four a chunk."""
        places = [chunk.plain if plain else chunk.address for chunk in self.wavefront]
        return tuple(place % ROW_BYTES // 4 + n for place in places for n in range(4))


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor of wgmma. Offsets in bytes; ``swizzle`` is 0, 32, 64 or 128.

    PTX manual, "Matrix Descriptor Format".
    """

    start: int
    leading: int
    stride: int
    swizzle: int
    base_offset: int = 0

    @property
    def bits(self) -> int:
        """The 64 bits, addresses without what 14 bits do not hold."""
        fields = ((self.start >> 4, 0), (self.leading >> 4, 16), (self.stride >> 4, 32))
        packed = sum((value & _FIELD) << place for value, place in fields)
        return packed | self.base_offset << 49 | _MODES[self.swizzle] << 62

    @classmethod
    def of(cls, bits: int) -> Descriptor:
        """What 64 bits describe."""
        start, leading, stride = ((bits >> place & _FIELD) << 4 for place in (0, 16, 32))
        swizzle = next(span for span, mode in _MODES.items() if mode == bits >> 62 & 3)
        return cls(start, leading, stride, swizzle, bits >> 49 & 7)

    def __str__(self) -> str:
        base = f", base offset {self.base_offset}" if self.base_offset else ""
        return (
            f"start {self.start:,}, leading offset {self.leading:,}, stride offset {self.stride:,}, "
            f"{swizzle_text(self.swizzle)}{base}"
        )


def swizzle_text(swizzle: int) -> str:
    return f"swizzle of {swizzle} bytes" if swizzle else "no swizzle"


def parse_swizzle(text: str) -> int:
    """Parses ``none``, ``32``, ``64`` or ``128``. Raises :class:`AccessError`."""
    known = {"none": 0, **{str(span): span for span in SWIZZLES if span}}
    if text not in known:
        raise AccessError(f"{text!r} is no swizzle of wgmma and TMA", f"There is {', '.join(known)}.")
    return known[text]


def parse_descriptor(text: str) -> Descriptor:
    """Parses the 64 bits of a descriptor, ``0x...`` or decimal. Raises :class:`AccessError`."""
    if not re.fullmatch(r"0x[0-9a-f]{1,16}|\d{1,20}", text, re.ASCII | re.IGNORECASE) or int(text, 0) >> 64:
        raise AccessError(f"{text!r} is no matrix descriptor", "It has 64 bits: 0x4000004000010000.")
    return Descriptor.of(int(text, 0))


def parse_shape(text: str) -> tuple[int, ...]:
    """Parses ``128x64``, the outermost dimension first. Raises :class:`AccessError`."""
    if not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8}){0,4}", text, re.ASCII):
        raise AccessError(f"{text!r} is no shape of a tile", "For example 128x64: 128 rows of 64 elements.")
    return tuple(map(int, text.split("x")))


def tile_descriptor(
    rows: int, columns: int, *, swizzle: int, major: str, element_bytes: int = 2, k: int = 0, start: int = 0
) -> Descriptor:
    """The descriptor of the operand from ``k`` on of a tile of ``rows`` x ``columns`` elements.

    The tile begins at ``start`` and lies in blocks of columns, each as wide as the swizzle (16 bytes without
    one) and all its rows high, as TMA leaves boxes side by side. K-major, its rows are the operand's;
    MN-major, its columns are.

    Raises :class:`AccessError`.
    """
    span = swizzle or CHUNK_BYTES
    _check_tile(rows, columns, span, major, element_bytes, k, start)
    block, eight_rows = rows * span, ROWS_OF_CORE * span
    if major == "mn":
        # The distance between blocks is the leading offset with a swizzle, and the stride without.
        leading, stride = (block, eight_rows) if swizzle else (eight_rows, block)
        return Descriptor(start + k * span, leading, stride, swizzle)
    along = k * element_bytes
    return Descriptor(start + along // span * block + along % span, block, eight_rows, swizzle)


def _check_tile(
    rows: int, columns: int, span: int, major: str, element_bytes: int, k: int, start: int
) -> None:
    if element_bytes not in OPERAND_ELEMENTS or (major == "mn" and element_bytes != 2):
        sizes = "2 bytes" if major == "mn" else "1, 2 or 4 bytes"
        raise AccessError(f"a {major.upper()}-major operand has elements of {sizes}, not of {element_bytes}")
    if rows % ROWS_OF_CORE:
        raise AccessError(f"a tile of {rows} rows; core matrices have {ROWS_OF_CORE}")
    if columns * element_bytes % span:
        raise AccessError(
            f"rows of {columns * element_bytes} bytes do not fill blocks of {span}",
            f"A narrower swizzle, or a multiple of {span // element_bytes} columns.",
        )
    step = CHUNKS_OF_K * CHUNK_BYTES // element_bytes
    length, outer = (columns, rows) if major == "k" else (rows, columns)
    if not 0 <= k <= length - step or k % step:
        raise AccessError(
            f"a product takes {step} along k, from a multiple of {step} on; {k} of {length} is none"
        )
    if outer > _MOST_ROWS:
        raise AccessError(f"an operand of {outer} rows; wgmma has at most {_MOST_ROWS}")
    if start % CHUNK_BYTES or not 0 <= start <= _SHARED_BYTES - rows * columns * element_bytes:
        raise AccessError(
            f"a tile at byte {start} of shared memory", "It begins at a multiple of 16 and must fit."
        )


def operand(
    descriptor: Descriptor,
    rows: int,
    *,
    major: str = "k",
    element_bytes: int = 2,
    k: int = 0,
    name: str = "operand",
) -> Placement:
    """The ``rows`` x k of an operand that a product reads: two chunks of 16 bytes along k, from ``k`` on.

    Raises :class:`AccessError`.
    """
    from ladder.run import emulator

    if major not in MAJORS:
        raise AccessError(f"{major!r} is none of {', '.join(MAJORS)}")
    if not 0 < rows <= _MOST_ROWS or rows % ROWS_OF_CORE:
        raise AccessError(f"an operand of {rows} rows; wgmma takes multiples of 8 up to {_MOST_ROWS}")
    groups = rows // ROWS_OF_CORE
    places = emulator.operand_chunks(descriptor.bits, major == "mn", groups)
    elements = CHUNK_BYTES // element_bytes
    chunks = []
    for number, (plain, address) in enumerate(places):
        core, row = divmod(number, ROWS_OF_CORE)
        group, c = divmod(core, CHUNKS_OF_K)
        line, along = (
            (ROWS_OF_CORE * group + row, k + c * elements)
            if major == "k"
            else (k + ROWS_OF_CORE * c + row, ROWS_OF_CORE * group)
        )
        chunks.append(Chunk(line, along, plain, address))
    wavefronts = CHUNKS_OF_K * groups
    return Placement(
        title=f"{name}, {major.upper()}-major, {swizzle_text(descriptor.swizzle)}",
        facts=(
            f"{rows} rows by {CHUNKS_OF_K * elements} along k, of {element_bytes} bytes each",
            f"descriptor 0x{descriptor.bits:016x}",
            str(descriptor),
            f"{wavefronts} wavefronts, one for each core matrix: 8 rows of 16 bytes",
        ),
        axes="row, k" if major == "k" else "k, row",
        swizzle=descriptor.swizzle,
        chunks=tuple(chunks),
        wavefront=tuple(chunks[:ROWS_OF_CORE]),
    )


def box(
    shape: Sequence[int],
    *,
    swizzle: int = 0,
    element_bytes: int = 2,
    address: int = 0,
    coordinates: Sequence[int] = (),
) -> Placement:
    """A box of TMA of ``shape``, outermost dimension first, at ``address`` of shared memory.

    ``coordinates`` are where it begins in its tensor, innermost first as in PTX. Raises :class:`AccessError`
    with the rule that the box breaks.
    """
    from ladder.run import emulator

    try:
        places = emulator.box_chunks(address, tuple(reversed(shape)), element_bytes, swizzle)
    except ValueError as error:
        raise AccessError(f"no box of TMA: {error}") from None
    per_row = shape[-1] * element_bytes // CHUNK_BYTES
    elements = CHUNK_BYTES // element_bytes
    chunks = [
        Chunk(number // per_row, number % per_row * elements, plain, at)
        for number, (plain, at) in enumerate(places)
    ]
    begin = f"; {{{', '.join(map(str, coordinates))}}} of its tensor" if coordinates else ""
    size = " x ".join(map(str, shape))
    return Placement(
        title=f"box of {size} elements of {element_bytes} bytes, {swizzle_text(swizzle)}",
        facts=(
            f"{math.prod(shape) * element_bytes:,} bytes, from byte {address:,} of shared memory on{begin}",
            f"{math.prod(shape[:-1])} rows of {shape[-1] * element_bytes} bytes, "
            f"{swizzle or shape[-1] * element_bytes} bytes apart",
        ),
        axes="row, column",
        swizzle=swizzle,
        chunks=tuple(chunks),
        wavefront=tuple(chunk for chunk in chunks if chunk.column == 0)[:ROWS_OF_CORE],
    )
