"""A slow model of tcgen05.mma's arithmetic and of the layouts of tensor memory, written from the rules.

The rules of the arithmetic are those of https://github.com/sf-tensor/tcgen05, a public model that was checked
on a B200. All products of one instruction and C are aligned to the largest exponent among them, truncated
toward zero to 25 bits below it, and added exactly. Values here are integers times powers of two, so nothing
rounds by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

NAN, INF = "nan", "inf"


@dataclass(frozen=True)
class Format:
    exponent_bits: int
    fraction_bits: int
    bias: int
    specials: str  # "ieee", "only nan" or "none"
    bits: int

    @property
    def name(self) -> str:
        return next(name for name, one in FORMATS.items() if one is self)


FORMATS = {
    "f16": Format(5, 10, 15, "ieee", 16),
    "bf16": Format(8, 7, 127, "ieee", 16),
    "tf32": Format(8, 10, 127, "ieee", 32),
    "f32": Format(8, 23, 127, "ieee", 32),
    "e4m3": Format(4, 3, 7, "only nan", 8),
    "e5m2": Format(5, 2, 15, "ieee", 8),
    "e2m3": Format(2, 3, 1, "none", 6),
    "e3m2": Format(3, 2, 3, "none", 6),
    "e2m1": Format(2, 1, 1, "none", 4),
}

#: A value: (sign, class or significand, raw exponent, exponent of the significand's last bit)
Value = tuple[int, object, int, int]


def decode(bits: int, name: str) -> Value:
    form = FORMATS[name]
    if name == "tf32":
        bits >>= 13
    fraction = bits & (1 << form.fraction_bits) - 1
    exponent = bits >> form.fraction_bits & (1 << form.exponent_bits) - 1
    sign = -1 if bits >> (form.exponent_bits + form.fraction_bits) & 1 else 1
    top = (1 << form.exponent_bits) - 1
    if exponent == top and form.specials == "ieee":
        return sign, NAN if fraction else INF, 0, 0
    if exponent == top and form.specials == "only nan" and fraction == (1 << form.fraction_bits) - 1:
        return sign, NAN, 0, 0
    raw = max(exponent, 1) - form.bias
    significand = fraction + (exponent > 0) * (1 << form.fraction_bits)
    return sign, significand, raw, raw - form.fraction_bits


def truncated(value: int, places: int) -> int:
    """value * 2^places, truncated toward zero."""
    magnitude = abs(value) << places if places >= 0 else abs(value) >> -places
    return magnitude if value >= 0 else -magnitude


def dot(
    a: list[int], b: list[int], c: int | None, a_format: str, b_format: str, half: bool, scale: int = 0
) -> int:
    """The bits of one element of D; ``c`` is None without an accumulator."""
    quiet, infinite = (0x7FFF, 0x7C00) if half else (0x7FFFFFFF, 0x7F800000)
    signs = set()
    terms = []  # (raw exponent, integer, exponent of its last bit)
    for x_bits, y_bits in zip(a, b, strict=True):
        x, y = decode(x_bits, a_format), decode(y_bits, b_format)
        if NAN in (x[1], y[1]):
            return quiet
        if INF in (x[1], y[1]):
            if 0 in (x[1], y[1]):
                return quiet
            signs.add(x[0] * y[0])
        elif x[1] and y[1]:
            terms.append((x[2] + y[2], x[0] * y[0] * x[1] * y[1], x[3] + y[3]))
    if c is not None:
        sign, significand, raw, last = decode(c, "f16" if half else "f32")
        if significand == NAN:
            return quiet
        if significand == INF:
            signs.add(sign)
        elif significand:
            terms.append((raw - scale, sign * significand, last - scale))
    if signs:
        return (
            quiet
            if len(signs) == 2
            else infinite | (min(signs) < 0) * (infinite + (0x400 if half else 0x800000))
        )
    if not terms:
        return 0
    unit = max(raw for raw, _, _ in terms) - 25
    total = sum(truncated(integer, last - unit) for _, integer, last in terms)
    return encode(total, unit, half)


def encode(total: int, unit: int, half: bool) -> int:
    """total * 2^unit as f32, truncated, or as f16, rounded to nearest even."""
    if total == 0:
        return 0
    form = FORMATS["f16" if half else "f32"]
    lowest, highest = 1 - form.bias, form.bias
    sign = (total < 0) << (form.bits - 1)
    magnitude = abs(total)
    top = max(magnitude.bit_length() - 1 + unit, lowest)
    last = top - form.fraction_bits
    steps = truncated(magnitude, unit - last)
    if half and last > unit:
        rest, middle = magnitude - (steps << last - unit), 1 << last - unit - 1
        steps += rest > middle or (rest == middle and steps % 2)
    if steps >> form.fraction_bits > 1:
        steps, top = steps >> 1, top + 1
    if top > highest:
        return sign | (1 << form.exponent_bits) - 1 << form.fraction_bits
    hidden = steps >> form.fraction_bits
    return (
        sign
        | (top + form.bias if hidden else 0) << form.fraction_bits
        | steps & (1 << form.fraction_bits) - 1
    )


# --- layouts ------------------------------------------------------------------------------------------


def transfer_cells(
    shape: str, count: int, packs: bool, half: int = 0
) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(lane of the warp, register) -> the (lane, column) of its 32 bits, or of its two halves if packed."""
    cells: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for t in range(32):
        if shape == "32x32b":
            places = [(t, r) for r in range(count)]
        elif shape == "16x64b":  # 8 rows of two 32-bit pairs per matrix; odd threads have the rows from 8 on
            places = [(t // 4 + t % 2 * 8, t // 2 % 2 + 2 * r) for r in range(count)]
        elif shape == "16x128b":  # two registers per matrix of 8 x 4 cells, rows 0-7 and 8-15
            places = [(t // 4 + 8 * h, t % 4 + 4 * m) for m in range(count) for h in (0, 1)]
        elif shape == "16x256b":  # as the accumulators of mma.sync
            places = [
                (t // 4 + 8 * h, t % 4 * 2 + x + 8 * m) for m in range(count) for h in (0, 1) for x in (0, 1)
            ]
        else:  # 16x32bx2
            places = [(t % 16, r) for r in range(count)]
        for r, (lane, column) in enumerate(places):
            shift = half if shape == "16x32bx2" and t >= 16 else 0
            columns = [2 * column, 2 * column + 1] if packs else [column]
            cells[t, r] = [(lane, one + shift) for one in columns]
    return cells
