"""Exact binary floating point in integers: results of operations on bits, in any format and rounding.

It does not use the machine's floating point. Values are Python ints that hold bit patterns; intermediate
results are ``significand * 2**power`` with significands of any length.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

RN, RZ, RM, RP = "rn", "rz", "rm", "rp"
MODES = (RN, RZ, RM, RP)


class Unpacked(NamedTuple):
    """An unpacked number; ``kind`` is "nan", "inf" or "finite"."""

    kind: str
    negative: bool = False
    significand: int = 0
    power: int = 0

    @property
    def value(self) -> Fraction:
        magnitude = self.significand * Fraction(2) ** self.power
        return -magnitude if self.negative else magnitude


NAN = Unpacked("nan")


class Format(NamedTuple):
    """An IEEE interchange format, with the NaN that a GPU produces in it."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    nan: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def inf(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def largest(self) -> int:
        return self.inf - 1

    @property
    def smallest_normal(self) -> int:
        return 1 << self.mantissa_bits

    def unpack(self, bits: int) -> Unpacked:
        return _unpack(self, bits)

    def pack(self, number: Unpacked, mode: str = RN) -> int:
        """Rounds a number of any precision."""
        if number.kind == "nan":
            return self.nan
        sign = self.sign if number.negative else 0
        if number.kind == "inf":
            return sign | self.inf
        significand = number.significand
        if significand == 0:
            return sign
        exponent = max(significand.bit_length() - 1 + number.power, 1 - self.bias)
        shift = exponent - self.mantissa_bits - number.power
        if shift <= 0:
            whole = significand << -shift
        else:
            whole, rest, half = significand >> shift, significand & ((1 << shift) - 1), 1 << (shift - 1)
            whole += {
                RN: rest > half or (rest == half and whole % 2 == 1),
                RZ: False,
                RM: number.negative and rest > 0,
                RP: not number.negative and rest > 0,
            }[mode]
        # A carry propagates into the exponent; a subnormal has no hidden bit.
        packed = ((exponent + self.bias - 1) << self.mantissa_bits) + whole
        if packed < self.inf:
            return sign | packed
        away = mode == RN or (mode == RM and number.negative) or (mode == RP and not number.negative)
        return sign | (self.inf if away else self.largest)

    def flush(self, bits: int) -> int:
        """Flushes a subnormal to a zero of the same sign."""
        return bits & self.sign if bits & self.inf == 0 else bits

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.inf


F16 = Format("f16", 5, 10, 0x7FFF)
BF16 = Format("bf16", 8, 7, 0x7FFF)
F32 = Format("f32", 8, 23, 0x7FFFFFFF)
F64 = Format("f64", 11, 52, 0x7FF8000000000000)


@lru_cache(maxsize=1 << 16)
def _unpack(f: Format, bits: int) -> Unpacked:
    negative = bool(bits & f.sign)
    exponent = bits >> f.mantissa_bits & ((1 << f.exponent_bits) - 1)
    mantissa = bits & ((1 << f.mantissa_bits) - 1)
    if exponent == (1 << f.exponent_bits) - 1:
        return NAN if mantissa else Unpacked("inf", negative)
    if exponent:
        mantissa |= 1 << f.mantissa_bits
    return Unpacked("finite", negative, mantissa, max(exponent, 1) - f.bias - f.mantissa_bits)


def _sum(a: Unpacked, b: Unpacked, mode: str) -> Unpacked:
    if "nan" in (a.kind, b.kind):
        return NAN
    if a.kind == "inf" or b.kind == "inf":
        if a.kind == b.kind and a.negative != b.negative:
            return NAN
        return a if a.kind == "inf" else b
    power = min(a.power, b.power)
    x, y = a.significand << (a.power - power), b.significand << (b.power - power)
    total = (-x if a.negative else x) + (-y if b.negative else y)
    if total == 0:
        if x == 0 and a.negative == b.negative:
            return a
        return Unpacked("finite", mode == RM)
    return Unpacked("finite", total < 0, abs(total), power)


def _product(a: Unpacked, b: Unpacked) -> Unpacked:
    if "nan" in (a.kind, b.kind):
        return NAN
    negative = a.negative != b.negative
    if a.kind == "inf" or b.kind == "inf":
        other = b if a.kind == "inf" else a
        return NAN if other.kind == "finite" and other.significand == 0 else Unpacked("inf", negative)
    return Unpacked("finite", negative, a.significand * b.significand, a.power + b.power)


def add(f: Format, a: int, b: int, mode: str = RN) -> int:
    return f.pack(_sum(f.unpack(a), f.unpack(b), mode), mode)


def sub(f: Format, a: int, b: int, mode: str = RN) -> int:
    return add(f, a, b ^ f.sign, mode)


def mul(f: Format, a: int, b: int, mode: str = RN) -> int:
    return f.pack(_product(f.unpack(a), f.unpack(b)), mode)


def fma(f: Format, a: int, b: int, c: int, mode: str = RN) -> int:
    return f.pack(_sum(_product(f.unpack(a), f.unpack(b)), f.unpack(c), mode), mode)


def div(f: Format, a: int, b: int, mode: str = RN) -> int:
    x, y = f.unpack(a), f.unpack(b)
    if "nan" in (x.kind, y.kind) or (x.kind == "inf" and y.kind == "inf"):
        return f.nan
    negative = x.negative != y.negative
    if x.kind == "inf":
        return f.pack(Unpacked("inf", negative))
    if y.kind == "inf":
        return f.pack(Unpacked("finite", negative))
    if y.significand == 0:
        return f.nan if x.significand == 0 else f.pack(Unpacked("inf", negative))
    # Enough bits for any rounding, plus a sticky bit.
    shift = 2 * f.mantissa_bits + 8
    whole, rest = divmod(x.significand << shift, y.significand)
    return f.pack(Unpacked("finite", negative, whole << 1 | (rest != 0), x.power - y.power - shift - 1), mode)


def sqrt(f: Format, a: int, mode: str = RN) -> int:
    x = f.unpack(a)
    if x.kind == "nan" or (x.negative and (x.kind == "inf" or x.significand != 0)):
        return f.nan
    if x.kind == "inf" or x.significand == 0:
        return f.pack(x)
    shift = 2 * f.mantissa_bits + 8 + x.power % 2
    scaled = x.significand << shift
    root = isqrt(scaled)
    return f.pack(
        Unpacked("finite", False, root << 1 | (root * root != scaled), (x.power - shift) // 2 - 1), mode
    )


def convert(to: Format, source: Format, bits: int, mode: str = RN) -> int:
    return to.pack(source.unpack(bits), mode)


def from_integer(f: Format, value: int, mode: str = RN) -> int:
    return f.pack(Unpacked("finite", value < 0, abs(value)), mode)


def to_integral(value: Fraction, mode: str) -> int:
    """The integer that .rni, .rzi, .rmi or .rpi gives (``mode`` without the i)."""
    down = value.numerator // value.denominator
    rest = value - down
    if mode == RM or rest == 0:
        return down
    if mode == RP:
        return down + 1
    if mode == RZ:
        return down if value > 0 else down + 1
    if rest == Fraction(1, 2):
        return down + down % 2
    return down + (rest > Fraction(1, 2))


def edge_bits(f: Format) -> list[int]:
    """Zeros, subnormals, ones, halves, powers, the largest, infinity and NaNs, of both signs."""
    one = f.bias << f.mantissa_bits
    ulp = 1
    positive = [
        0,
        1,
        2,
        3,
        f.smallest_normal - 1,
        f.smallest_normal,
        f.smallest_normal + 1,
        one - f.smallest_normal,  # 0.5
        one - ulp,
        one,
        one + ulp,
        one + f.smallest_normal // 2,  # 1.5
        one + f.smallest_normal,  # 2
        one + f.smallest_normal * 3 // 2,  # 3
        one + f.smallest_normal * (f.mantissa_bits // 2),
        one + f.smallest_normal * f.mantissa_bits + 1,
        one + f.smallest_normal * (f.mantissa_bits + 1),
        f.largest - f.smallest_normal,
        f.largest - 1,
        f.largest,
        f.inf,
        f.inf | f.smallest_normal >> 1,  # the quiet NaN of other machines
        f.nan,
    ]
    return positive + [bits | f.sign for bits in positive]
