"""cvt between all pairs of types, against integers and rational numbers."""

from __future__ import annotations

import itertools
import random

import exact_float as exact
import numpy as np
import pytest
from exact_float import BF16, F16, F32, F64, MODES, RM, RN, RP, RZ, Format
from ptx_kernels import element_type, run_forms, run_instruction

from ladder.run.emulator import FaultError

INTEGERS = tuple(f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "us")
FLOATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def limits(t: str) -> tuple[int, int]:
    bits = int(t[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if t[0] == "s" else (0, (1 << bits) - 1)


def wrap(value: int, t: str) -> int:
    low, high = limits(t)
    return (value - low) % (high - low + 1) + low


def clamp(value: int, t: str) -> int:
    low, high = limits(t)
    return max(low, min(high, value))


def integers(t: str) -> list[int]:
    """Edges of all widths, values that round in each float format, and random ones."""
    rng = random.Random(t)
    values = {0, 1, -1, 2, 3, 100, -100}
    for bits in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64):
        values |= {(1 << bits) + d for d in (-2, -1, 0, 1, 2, 3)} | {-(1 << bits) + d for d in (-1, 0, 1)}
    values |= {0x7F7F7F7F7F7F, 65519, 65520, 65504, 65536, 2049, 2051, 257, 259, (1 << 54) + 2, (1 << 54) + 6}
    values |= {rng.getrandbits(64) >> rng.randrange(64) for _ in range(60)}
    return sorted({wrap(v, t) for v in values})


def unsigned(f: Format) -> np.dtype:
    return np.dtype(f"u{f.bits // 8}")


def bit_patterns(f: Format) -> np.ndarray:
    """Edges, numbers near integers' limits and halves, and random patterns."""
    rng = random.Random(f.name)
    values = exact.edge_bits(f)
    for bits in (0, 1, 2, 7, 8, 15, 16, 31, 32, 63, 64):
        near = exact.from_integer(f, 1 << bits)
        values += [near - 1, near, near + 1, (near - 1) | f.sign, near | f.sign, (near + 1) | f.sign]
    for quarters in range(-11, 12):
        number = exact.Unpacked("finite", quarters < 0, abs(quarters), -2)
        values.append(f.pack(number))
    values += [rng.getrandbits(f.bits) for _ in range(100)]
    return np.array(values, unsigned(f))


def fails(have: list[int], want: list[int], sources: list[int], what: str) -> str:
    """Describes the first difference; "" if they are equal."""
    for h, w, s in zip(have, want, sources, strict=True):
        if h != w:
            return f"{what} of {s:#x}: {h:#x}, not {w:#x}"
    return ""


# --- integers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", INTEGERS)
def test_integers_are_cut_extended_or_clamped(to: str) -> None:
    for source in INTEGERS:
        values = np.array(integers(source), element_type(source))
        forms = {wrap: f"cvt.{to}.{source} %d, %a;"}
        if any(clamp(limit, to) != limit for limit in limits(source)):  # otherwise there is no .sat
            forms[clamp] = f"cvt.sat.{to}.{source} %d, %a;"
        got = run_forms(forms, {"a": (source, values)}, {"d": to})
        for function in forms:
            assert got[function]["d"].tolist() == [function(int(v), to) for v in values], source


def test_registers_wider_than_their_types() -> None:
    a = np.array([0, 1, 0x7F, 0x80, 0xFF, 0x1234, 0x8000, 0xFFFF, 0x12345680, 0xDEADBEEFCAFE80], np.uint64)
    lines = {
        # A source's upper bits do not matter.
        "s64.s8": ("cvt.s64.s8 %d, %a;", lambda v: wrap(v, "s8")),
        "s64.s16": ("cvt.s64.s16 %d, %a;", lambda v: wrap(v, "s16")),
        "u64.u32": ("cvt.u64.u32 %d, %a;", lambda v: wrap(v, "u32")),
        # A result is extended according to its type.
        "s8 in 64": ("cvt.s8.u64 %d, %a;", lambda v: wrap(v, "s8")),
        "u16 in 64": ("cvt.u16.u64 %d, %a;", lambda v: wrap(v, "u16")),
        "s8 in 32": (
            ".reg .b32 %w; cvt.s8.u64 %w, %a; cvt.u64.u32 %d, %w;",
            lambda v: wrap(wrap(v, "s8"), "u32"),
        ),
        "s8 in 16": (
            ".reg .b16 %h; cvt.s8.u64 %h, %a; cvt.u64.u16 %d, %h;",
            lambda v: wrap(wrap(v, "s8"), "u16"),
        ),
        "float": (
            ".reg .b16 %h; .reg .f32 %f; cvt.rn.f32.s8 %f, %a0; cvt.rzi.s8.f32 %h, %f; cvt.u64.u16 %d, %h;",
            lambda v: wrap(wrap(v, "s8"), "u16"),
        ),
    }
    prefix = ".reg .b32 %a0; cvt.u32.u64 %a0, %a;"
    got = run_forms({k: prefix + line for k, (line, _) in lines.items()}, {"a": ("u64", a)}, {"d": "u64"})
    for form, (_, function) in lines.items():
        assert got[form]["d"].tolist() == [wrap(function(int(v)), "u64") for v in a], form


@pytest.mark.parametrize("field", ["s2", "u2", "s4", "u4", "s8", "u8", "s16", "u16"])
def test_pack_saturates_two_integers_above_each_other(field: str) -> None:
    """By the PTX manual: b's field is the lowest, a's is above it, and the low bits of c fill the rest."""
    size = int(field[1:])
    rng = random.Random(field)
    values = integers("s32")
    a, b = ([rng.choice(values) for _ in range(200)] for _ in range(2))
    c = [rng.getrandbits(32) for _ in a]
    form = f"cvt.pack.sat.{field}.s32" + (".b32 %d, %a, %b, %c;" if size < 16 else " %d, %a, %b;")
    columns = {"a": ("s32", np.array(a, np.int32)), "b": ("s32", np.array(b, np.int32))}
    got = run_forms({form: form}, {**columns, "c": ("u32", np.array(c, np.uint32))}, {"d": "u32"})

    def packed(x: int, y: int, rest: int) -> int:
        fields = wrap(clamp(x, field), f"u{size}") << size | wrap(clamp(y, field), f"u{size}")
        return fields if size == 16 else wrap(rest << 2 * size | fields, "u32")

    assert got[form]["d"].tolist() == [*map(packed, a, b, c)]


@pytest.mark.parametrize("form", ["sat.s8.s32", "sat.s16.s32.b32", "s8.s32.b32", "sat.s32.s32.b32"])
def test_other_forms_of_pack_are_refused(form: str) -> None:
    with pytest.raises(FaultError, match=r"cvt\.pack\.sat\.TYPE\.s32"):
        run_forms(
            {form: f"cvt.pack.{form} %d, %a, %a, %a;"}, {"a": ("s32", np.zeros(1, np.int32))}, {"d": "u32"}
        )


# --- integers and floats --------------------------------------------------------------------------


def convertible(a: str, b: str) -> bool:
    return not {a, b} & {"u8", "s8"} or "bf16" not in (a, b)


@pytest.mark.parametrize(
    ("to", "source"), [p for p in itertools.product(FLOATS, INTEGERS) if convertible(*p)]
)
def test_integers_to_floats_round_in_every_mode(to: str, source: str) -> None:
    f = FLOATS[to]
    values = integers(source)
    forms = {mode: f"cvt.{mode}.{to}.{source} %d, %a;" for mode in MODES}
    got = run_forms(forms, {"a": (source, np.array(values, element_type(source)))}, {"d": to})
    for mode in MODES:
        expected = [exact.from_integer(f, v, mode) for v in values]
        found = got[mode]["d"].view(unsigned(f)).tolist()
        assert not (why := fails(found, expected, values, forms[mode])), why


@pytest.mark.parametrize(
    ("to", "source"), [p for p in itertools.product(INTEGERS, FLOATS) if convertible(*p)]
)
def test_floats_to_integers_round_and_clamp(to: str, source: str) -> None:
    f = FLOATS[source]
    bits = bit_patterns(f)
    forms = {mode: f"cvt.{mode}i.{to}.{source} %d, %a;" for mode in MODES}
    if source == "f32":
        forms["ftz"] = f"cvt.rpi.ftz.{to}.f32 %d, %a;"
        forms["sat"] = f"cvt.rni.sat.{to}.f32 %d, %a;"
    got = run_forms(forms, {"a": (source, bits)}, {"d": to})
    low, high = limits(to)
    # NaN becomes zero according to the manual, unless one of the types has 64 bits.
    width = int(to[1:])
    nan = wrap(1 << (width - 1), to) if source == "f64" or width == 64 else 0
    for form in forms:
        mode = {"ftz": RP, "sat": RN}.get(form, form)
        expected = []
        for pattern in bits.tolist():
            number = f.unpack(f.flush(pattern) if form == "ftz" else pattern)
            if number.kind == "nan":
                expected.append(nan)
            elif number.kind == "inf":
                expected.append(low if number.negative else high)
            else:
                expected.append(clamp(exact.to_integral(number.value, mode), to))
        assert not (why := fails(got[form]["d"].tolist(), expected, bits.tolist(), forms[form])), why


# --- floats ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "source"), [p for p in itertools.product(FLOATS, FLOATS) if p[0] != p[1]])
def test_floats_to_floats(to: str, source: str) -> None:
    f, g = FLOATS[to], FLOATS[source]
    bits = bit_patterns(g)
    if f.mantissa_bits < g.mantissa_bits:  # near the midpoint of two neighbours
        shift = g.mantissa_bits - f.mantissa_bits
        rng = random.Random(4)
        near = [
            (rng.getrandbits(g.bits) >> shift << shift) + (1 << (shift - 1)) + d
            for d in (-1, 0, 1)
            for _ in range(60)
        ]
        bits = np.concatenate([bits, np.array(near, unsigned(g))])
    narrows = not (f.mantissa_bits >= g.mantissa_bits and f.exponent_bits >= g.exponent_bits)
    forms = (
        {mode: f"cvt.{mode}.{to}.{source} %d, %a;" for mode in MODES}
        if narrows
        else {RN: f"cvt.{to}.{source} %d, %a;"}
    )
    got = run_forms(forms, {"a": (source, bits)}, {"d": to})
    for mode in forms:
        expected = [exact.convert(f, g, pattern, mode) for pattern in bits.tolist()]
        found = got[mode]["d"].view(unsigned(f)).tolist()
        if f is F64 or g in (F64, BF16):  # NaNs keep their payload
            found = [f.nan if f.is_nan(pattern) else pattern for pattern in found]
        assert not (why := fails(found, expected, bits.tolist(), forms[mode])), why


@pytest.mark.parametrize("name", FLOATS)
def test_rounding_to_integral_values(name: str) -> None:
    f = FLOATS[name]
    bits = bit_patterns(f)
    forms = {mode: f"cvt.{mode}i.{name}.{name} %d, %a;" for mode in MODES}
    got = run_forms(forms, {"a": (name, bits)}, {"d": name})
    for mode in MODES:
        expected = []
        for pattern in bits.tolist():
            number = f.unpack(pattern)
            if number.kind == "finite":
                whole = abs(exact.to_integral(number.value, mode))
                number = exact.Unpacked("finite", number.negative, whole)
            expected.append(f.pack(number))
        found = got[mode]["d"].view(unsigned(f)).tolist()
        if f is F64:
            found = [f.nan if f.is_nan(pattern) else pattern for pattern in found]
        assert not (why := fails(found, expected, bits.tolist(), forms[mode])), why


def test_modifiers_of_conversions_between_floats() -> None:
    bits = bit_patterns(F32)
    wide = np.concatenate([bit_patterns(F64), bits.view(np.float32).astype(np.float64).view(np.uint64)])

    def saturated(f: Format, pattern: int) -> int:
        number = f.unpack(pattern)
        one = f.bias << f.mantissa_bits
        return 0 if number.kind == "nan" or number.negative else min(pattern, one)

    def canonical(pattern: int) -> int:
        return F32.nan if F32.is_nan(pattern) else pattern

    forms = {
        "cvt.ftz.f32.f32": lambda x: canonical(F32.flush(x)),
        "cvt.sat.f32.f32": lambda x: saturated(F32, x),
        "cvt.rni.ftz.f32.f32": lambda x: (
            x & F32.sign if F32.unpack(x).kind == "finite" and x & F32.inf == 0 else None
        ),
    }
    got = run_forms({k: f"{k} %d, %a;" for k in forms}, {"a": ("f32", bits)}, {"d": "f32"})
    for form, function in forms.items():
        for pattern, d in zip(bits.tolist(), got[form]["d"].view(np.uint32).tolist(), strict=True):
            want = function(pattern)
            assert want is None or d == want, (form, hex(pattern))

    narrow = {
        "cvt.rn.ftz.f32.f64": lambda x: F32.flush(exact.convert(F32, F64, x)),
        "cvt.rz.ftz.f32.f64": lambda x: F32.flush(exact.convert(F32, F64, x, RZ)),
        "cvt.rm.sat.f32.f64": lambda x: saturated(F32, exact.convert(F32, F64, x, RM)),
        "cvt.rn.sat.f32.f64": lambda x: saturated(F32, exact.convert(F32, F64, x)),
    }
    got = run_forms({k: f"{k} %d, %a;" for k in narrow}, {"a": ("f64", wide)}, {"d": "f32"})
    for form, function in narrow.items():
        expected = [function(pattern) for pattern in wide.tolist()]
        found = [F32.nan if F32.is_nan(d) else d for d in got[form]["d"].view(np.uint32).tolist()]
        assert not (why := fails(found, expected, wide.tolist(), form)), why
    got = run_forms({"": "cvt.ftz.f64.f32 %d, %a;"}, {"a": ("f32", bits)}, {"d": "f64"})[""]["d"]
    for pattern, d in zip(bits.tolist(), got.view(np.uint64).tolist(), strict=True):
        want = exact.convert(F64, F32, F32.flush(pattern))
        assert d == want or (F64.is_nan(d) and F64.is_nan(want)), hex(pattern)


def modified(f: Format, bits: int, mode: str, relu: bool, satfinite: bool, source: Format = F32) -> int:
    """A float converted with .relu and .satfinite."""
    result = exact.convert(f, source, bits, mode)
    if satfinite and result & ~f.sign == f.inf:
        result -= 1
    return 0 if relu and result & f.sign and not f.is_nan(result) else result


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_pairs_of_floats_to_packed_halves(name: str) -> None:
    f = FLOATS[name]
    high, low = bit_patterns(F32), bit_patterns(F32)[::-1].copy()
    forms = {
        (mode, relu, sat): f"cvt.{mode}{relu}{sat}.{name}x2.f32 %d, %a, %b;"
        for mode in (RN, RZ)
        for relu in ("", ".relu")
        for sat in ("", ".satfinite")
    }
    got = run_forms(forms, {"a": ("f32", high), "b": ("f32", low)}, {"d": "b32"})
    one = run_forms(
        {k: line.replace("x2", "").replace(", %b", "") for k, line in forms.items()},
        {"a": ("f32", high)},
        {"d": "b16"},
    )
    for mode, relu, sat in forms:
        first = [modified(f, x, mode, bool(relu), bool(sat)) for x in high.tolist()]
        second = [modified(f, x, mode, bool(relu), bool(sat)) for x in low.tolist()]
        found = got[mode, relu, sat]["d"].tolist()
        line = forms[mode, relu, sat]
        assert not (why := fails([d >> 16 for d in found], first, high.tolist(), line)), why
        assert not (why := fails([d & 0xFFFF for d in found], second, low.tolist(), line)), why
        assert not (why := fails(one[mode, relu, sat]["d"].tolist(), first, high.tolist(), line)), why


def test_tf32() -> None:
    bits = bit_patterns(F32)
    ties = np.array([0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF, 0xBF801000, 0x7F7FF000], np.uint32)
    bits = np.concatenate([bits, ties])
    tf32 = Format("tf32", 8, 10, F32.nan >> 13)
    forms = {
        "rna": "cvt.rna.tf32.f32 %d, %a;",
        "rn": "cvt.rn.tf32.f32 %d, %a;",
        "rz": "cvt.rz.tf32.f32 %d, %a;",
    }
    forms["relu"] = "cvt.rn.relu.tf32.f32 %d, %a;"
    forms["satfinite"] = "cvt.rna.satfinite.tf32.f32 %d, %a;"
    got = run_forms(forms, {"a": ("f32", bits)}, {"d": "b32"})

    def away(pattern: int) -> int:
        """Rounds ties away from zero: adding a little before rounding to nearest breaks them."""
        number = F32.unpack(pattern)
        if number.kind == "finite" and number.significand:
            number = number._replace(significand=(number.significand << 30) + 1, power=number.power - 30)
        return tf32.pack(number)

    for form in forms:
        for pattern, d in zip(bits.tolist(), got[form]["d"].tolist(), strict=True):
            if F32.is_nan(pattern):
                assert d == (pattern & ~0x1FFF if form in ("rna", "satfinite") else 0x7FFFE000)
                continue
            want = (
                away(pattern)
                if form in ("rna", "satfinite")
                else exact.convert(tf32, F32, pattern, {"rz": RZ}.get(form, RN))
            )
            if form == "satfinite" and want & ~tf32.sign == tf32.inf:
                want -= 1
            want = 0 if form == "relu" and pattern & F32.sign else want << 13
            assert d == want, (form, hex(pattern), hex(d), hex(want))


# --- 8-bit floats ----------------------------------------------------------------------------------


def decode8(bits: int, kind: str) -> float:
    exponent_bits, mantissa_bits = (4, 3) if kind == "e4m3" else (5, 2)
    bias = (1 << (exponent_bits - 1)) - 1
    exponent, mantissa = bits >> mantissa_bits & ((1 << exponent_bits) - 1), bits & ((1 << mantissa_bits) - 1)
    if kind == "e4m3" and bits & 0x7F == 0x7F:
        return float("nan")
    if kind == "e5m2" and exponent == 31:
        return float("nan") if mantissa else float("-inf" if bits & 128 else "inf")
    scale = 2.0 ** (max(exponent, 1) - bias - mantissa_bits)
    return (-1.0 if bits & 128 else 1.0) * (mantissa + (1 << mantissa_bits if exponent else 0)) * scale


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_every_8_bit_float_to_f16(kind: str) -> None:
    a = np.arange(2**16, dtype=np.uint16)
    forms = {"": f"cvt.rn.f16x2.{kind}x2 %d, %a;", "relu": f"cvt.rn.relu.f16x2.{kind}x2 %d, %a;"}
    got = run_forms(forms, {"a": ("b16", a[::97])}, {"d": "b32"})
    for form in forms:
        halves = got[form]["d"].view(np.float16).reshape(-1, 2)
        for pair, (low, high) in zip(a[::97].tolist(), halves, strict=True):
            for bits, d in ((pair & 255, low), (pair >> 8, high)):
                want = decode8(bits, kind)
                want = 0.0 if form == "relu" and want <= 0 else want
                assert d == want or (np.isnan(d) and np.isnan(want)), (form, bits)
                assert np.signbit(d) == np.signbit(want) or np.isnan(want)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_floats_to_8_bit_floats_saturate(kind: str) -> None:
    largest = 448.0 if kind == "e4m3" else 57344.0
    table = sorted((decode8(bits, kind), bits) for bits in range(0x80) if 0 <= decode8(bits, kind) <= largest)
    values = np.array([v for v, _ in table])
    middles = (values[1:] + values[:-1]) / 2
    positive = np.concatenate(
        [values, middles, np.nextafter(middles, 0), np.nextafter(middles, 1e9), [largest * 1.5, 1e9]]
    )
    a = np.concatenate([positive, -positive, [np.inf, -np.inf, np.nan]]).astype(np.float32)

    def nearest(x: float, relu: bool) -> int:
        if np.isnan(x):
            return 0x7F
        magnitude = min(abs(x), largest)
        below = int(np.searchsorted(values, magnitude, side="right")) - 1
        if below + 1 < values.size:
            left, right = magnitude - values[below], values[below + 1] - magnitude
            below += right < left or (right == left and table[below][1] % 2 == 1)
        bits = table[below][1]
        if np.signbit(x):
            return 0 if relu else bits | 0x80
        return bits

    b = a[::-1].copy()
    forms = {
        "": f"cvt.rn.satfinite.{kind}x2.f32 %d, %a, %b;",
        "relu": f"cvt.rn.satfinite.relu.{kind}x2.f32 %d, %a, %b;",
    }
    got = run_forms(forms, {"a": ("f32", a), "b": ("f32", b)}, {"d": "b16"})
    for form in forms:
        expected = [
            nearest(float(x), bool(form)) << 8 | nearest(float(y), bool(form))
            for x, y in zip(a, b, strict=True)
        ]
        assert not (
            why := fails(got[form]["d"].tolist(), expected, a.view(np.uint32).tolist(), forms[form])
        ), why
    with np.errstate(over="ignore"):
        halves = a[: a.size // 2 * 2].astype(np.float16)
    packed = run_instruction(
        f"cvt.rn.satfinite.{kind}x2.f16x2 %d, %a;", {"a": ("b32", halves.view(np.uint32))}, {"d": "b16"}
    )
    expected = [nearest(float(h), False) for h in halves]
    assert packed["d"].view(np.uint8).tolist() == expected


# --- bf16 and bytes -------------------------------------------------------------------------------


@pytest.mark.parametrize("t", ["u8", "s8"])
def test_bf16_and_bytes(t: str) -> None:
    """Uses 8-bit registers, like the headers of CUDA 13."""
    bits = np.arange(65536, dtype=np.uint16)
    values = np.nan_to_num((bits.astype(np.uint32) << 16).view(np.float32), nan=0)
    rounded = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
    forms = {mode: f".reg .b8 %q; cvt.{mode}.{t}.bf16 %q, %a; mov.b16 %d, {{%q, 0}};" for mode in rounded}
    got = run_forms(forms, {"a": ("b16", bits)}, {"d": "b16"})
    low, high = (0, 255) if t == "u8" else (-128, 127)
    for mode, function in rounded.items():
        expected = function(values.clip(low, high)).astype(np.int64) & 255
        assert np.array_equal(got[mode]["d"], expected), mode
    numbers = np.arange(256, dtype=np.uint16)
    back = run_instruction(
        f".reg .b8 %q, %r; mov.b16 {{%q, %r}}, %a; cvt.rn.bf16.{t} %d, %q;",
        {"a": ("b16", numbers)},
        {"d": "b16"},
    )["d"]
    signed = numbers.astype(np.uint8).view(np.int8) if t == "s8" else numbers
    assert np.array_equal((back.astype(np.uint32) << 16).view(np.float32), signed.astype(np.float32))


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "arch"),
    [
        ("cvt.s32.f32 %i, %a;", "sm_80"),
        ("cvt.rn.f64.bf16 %e, %h;", "sm_80"),
        ("cvt.rzi.s8.bf16 %h, %h;", "sm_90"),
        ("cvt.rn.bf16.u8 %h, %h;", "sm_90"),
        ("cvt.rn.bf16.f32 %h, %a;", "sm_75"),
        ("cvt.rn.f16x2.f32 %i, %a, %a;", "sm_75"),
        ("cvt.rna.tf32.f32 %i, %a;", "sm_75"),
        ("cvt.rn.satfinite.e4m3x2.f32 %h, %a, %a;", "sm_80"),
        ("cvt.rn.e4m3x2.f32 %h, %a, %a;", "sm_90"),
        ("cvt.rni.f32.f64 %a, %e;", "sm_90"),
        ("cvt.u64.u32 %i, %i;", "sm_80"),
        ("cvt.rs.f16x2.f32 %i, %a, %a, %i;", "sm_90"),
    ],
)
def test_what_does_not_exist_is_refused(line: str, arch: str) -> None:
    with pytest.raises(FaultError, match="not supported: " + line.split()[0].replace(".", r"\.")):
        run_instruction(
            [".reg .b32 %i; .reg .b16 %h; .reg .f64 %e;", line],
            {"a": ("f32", np.zeros(32, np.float32))},
            {"d": "f32"},
            arch=arch,
        )
