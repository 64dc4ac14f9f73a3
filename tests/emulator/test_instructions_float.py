"""Compares f32 and f64 arithmetic with rational numbers, and the approximations with the maths library."""

from __future__ import annotations

import itertools
import math
import random

import exact_float as exact
import numpy as np
import pytest
from exact_float import F32, F64, MODES, RN, RZ, Format
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_kernels import grid_of, run_forms, run_instruction

from ladder.run.emulator import FaultError

FORMATS = {"f32": F32, "f64": F64}
BITS = {"f32": np.uint32, "f64": np.uint64}

UNARY = {"rcp": lambda f, a, mode: exact.div(f, f.bias << f.mantissa_bits, a, mode), "sqrt": exact.sqrt}
BINARY = {"add": exact.add, "sub": exact.sub, "mul": exact.mul, "div": exact.div}


def bits_of(name: str, values: list[int]) -> np.ndarray:
    return np.array(values, dtype=BITS[name])


def assert_same(f: Format, got: np.ndarray, expected: list[int], *inputs: np.ndarray) -> None:
    """Compares bit for bit, except that any f64 NaN equals any other."""
    found = [int(bits) for bits in got.view(BITS[f.name])]
    for i, (have, want) in enumerate(zip(found, expected, strict=True)):
        if f is F64 and f.is_nan(have) and f.is_nan(want):
            continue
        shown = [f"{int(x.view(BITS[f.name])[i]):#x}" for x in inputs]
        assert have == want, f"{shown}: {have:#x}, not {want:#x}"


def random_bits(f: Format, count: int, seed: int) -> list[int]:
    """Random patterns, many with close exponents, so that sums cancel and products reach the limits."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        bits = rng.getrandbits(f.bits)
        if rng.random() < 0.6:
            exponent = f.bias + rng.randint(-3, 3)
            bits = (bits & (f.sign | (f.smallest_normal - 1))) | exponent << f.mantissa_bits
        made.append(bits)
    return made


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_sums_products_and_quotients_round_correctly_in_every_mode(name: str) -> None:
    f = FORMATS[name]
    edges = bits_of(name, exact.edge_bits(f))
    a, b = grid_of(edges, edges)
    more = random_bits(f, 600, seed=1)
    a = np.concatenate([a, bits_of(name, more[:300])])
    b = np.concatenate([b, bits_of(name, more[300:])])
    forms = {(op, mode): f"{op}.{mode}.{name} %d, %a, %b;" for op, mode in itertools.product(BINARY, MODES)}
    got = run_forms(forms, {"a": (name, a), "b": (name, b)}, {"d": name})
    for op, mode in forms:
        expected = [BINARY[op](f, int(x), int(y), mode) for x, y in zip(a, b, strict=True)]
        assert_same(f, got[op, mode]["d"], expected, a, b)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_reciprocals_and_square_roots_round_correctly_in_every_mode(name: str) -> None:
    f = FORMATS[name]
    a = bits_of(name, exact.edge_bits(f) + random_bits(f, 150, seed=2))
    forms = {(op, mode): f"{op}.{mode}.{name} %d, %a;" for op, mode in itertools.product(UNARY, MODES)}
    got = run_forms(forms, {"a": (name, a)}, {"d": name})
    for op, mode in forms:
        assert_same(f, got[op, mode]["d"], [UNARY[op](f, int(x), mode) for x in a], a)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_fma_rounds_once_in_every_mode(name: str) -> None:
    f = FORMATS[name]
    edges = exact.edge_bits(f)
    rng = random.Random(3)
    triples = [tuple(rng.choice(edges) for _ in range(3)) for _ in range(700)]
    for _ in range(500):
        # c close to -a*b, or far below it, where two roundings go wrong.
        x, y = random_bits(f, 2, rng.getrandbits(30))
        product = exact.mul(f, x, y)
        z = product ^ f.sign if rng.random() < 0.5 else rng.choice([1, f.sign | 1, f.smallest_normal])
        triples.append((x, y, z))
    a, b, c = (bits_of(name, list(column)) for column in zip(*triples, strict=True))
    forms = {mode: f"fma.{mode}.{name} %d, %a, %b, %c;" for mode in MODES}
    forms["mad"] = f"mad.rn.{name} %d, %a, %b, %c;"
    got = run_forms(forms, {"a": (name, a), "b": (name, b), "c": (name, c)}, {"d": name})
    for form in forms:
        mode = RN if form == "mad" else form
        expected = [exact.fma(f, *map(int, t), mode) for t in zip(a, b, c, strict=True)]
        assert_same(f, got[form]["d"], expected, a, b, c)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 3), min_size=32, max_size=64))
def test_fma_of_any_bits(triples: list[tuple[int, int, int]]) -> None:
    a, b, c = (bits_of("f32", list(column)) for column in zip(*triples, strict=True))
    got = run_instruction(
        "fma.rn.f32 %d, %a, %b, %c;", {"a": ("f32", a), "b": ("f32", b), "c": ("f32", c)}, {"d": "f32"}
    )
    assert_same(F32, got["d"], [exact.fma(F32, *t) for t in triples], a, b, c)


def test_ftz_flushes_what_would_round_up_to_a_normal_number() -> None:
    # (1 + 2^-23) (1 - 2^-23) 2^-126 is below the smallest normal number, by a relative 2^-46.
    a = bits_of("f32", [0x20000001, 0x20000001, 0x20000001])
    b = bits_of("f32", [0x1FFFFFFE, 0x9FFFFFFE, 0x20000000])
    forms = {"mul": "mul.ftz.f32 %d, %a, %b;", "fma": "fma.rn.ftz.f32 %d, %a, %b, 0f80000000;"}
    got = run_forms(forms, {"a": ("f32", a), "b": ("f32", b)}, {"d": "f32"})
    assert got["mul"]["d"].view(np.uint32).tolist() == [0, 0x80000000, 0x00800001]
    assert got["fma"]["d"].view(np.uint32).tolist() == [0, 0x80000000, 0x00800001]
    got = run_forms({"": "mul.f32 %d, %a, %b;"}, {"a": ("f32", a), "b": ("f32", b)}, {"d": "f32"})
    assert got[""]["d"].view(np.uint32).tolist() == [0x00800000, 0x80800000, 0x00800001]


def saturated(bits: int) -> int:
    number = F32.unpack(bits)
    if number.kind == "nan" or number.negative or bits == 0:
        return 0
    return min(bits, 0x3F800000)


def test_modifiers_ftz_and_sat() -> None:
    edges = bits_of("f32", exact.edge_bits(F32))
    a, b = grid_of(edges, edges)
    forms = {
        (op, mode, ftz, sat): f"{op}.{mode}{ftz}{sat}.f32 %d, %a, %b;"
        for op in ("add", "sub", "mul")
        for mode in ("rn", "rz", "rp")
        for ftz in ("", ".ftz")
        for sat in ("", ".sat")
        if ftz or sat
    }
    got = run_forms(forms, {"a": ("f32", a), "b": ("f32", b)}, {"d": "f32"})
    for op, mode, ftz, sat in forms:
        expected = []
        for x, y in zip(map(int, a), map(int, b), strict=True):
            if ftz:
                x, y = F32.flush(x), F32.flush(y)
            result = BINARY[op](F32, x, y, mode)
            # A subnormal that rounds up to a normal number is flushed, too.
            result = F32.flush(BINARY[op](F32, x, y, RZ)) if ftz and result & ~F32.sign == 1 << 23 else result
            result = F32.flush(result) if ftz else result
            expected.append(saturated(result) if sat else result)
        assert_same(F32, got[op, mode, ftz, sat]["d"], expected, a, b)


def tiny(operands: list[int]) -> bool:
    """Whether a fused multiply-add is subnormal before rounding."""
    towards_zero = exact.fma(F32, *operands, RZ)
    return not F32.is_nan(towards_zero) and towards_zero & F32.inf == 0


def test_fma_with_ftz_and_sat() -> None:
    rng = random.Random(5)
    edges = exact.edge_bits(F32)
    triples = [tuple(rng.choice(edges) for _ in range(3)) for _ in range(500)]
    a, b, c = (bits_of("f32", list(column)) for column in zip(*triples, strict=True))
    got = run_instruction(
        "fma.rn.ftz.sat.f32 %d, %a, %b, %c;",
        {"a": ("f32", a), "b": ("f32", b), "c": ("f32", c)},
        {"d": "f32"},
    )
    flushed = [[F32.flush(x) for x in t] for t in triples]
    expected = [0 if tiny(t) else saturated(F32.flush(exact.fma(F32, *t))) for t in flushed]
    assert_same(F32, got["d"], expected, a, b, c)


def extremum(f: Format, a: int, b: int, largest: bool, nan: bool = False) -> int:
    if f.is_nan(a) or f.is_nan(b):
        if nan or (f.is_nan(a) and f.is_nan(b)):
            return f.nan
        return b if f.is_nan(a) else a

    def key(bits: int) -> int:  # total order of the bits
        return -(bits & ~f.sign) - 1 if bits & f.sign else bits

    return max(a, b, key=key) if largest else min(a, b, key=key)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_minimum_and_maximum(name: str) -> None:
    f = FORMATS[name]
    edges = bits_of(name, exact.edge_bits(f))
    a, b = grid_of(edges, edges)
    variants = [""] if name == "f64" else ["", ".ftz", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs", ".ftz.NaN"]
    forms = {(op, v): f"{op}{v}.{name} %d, %a, %b;" for op in ("min", "max") for v in variants}
    got = run_forms(forms, {"a": (name, a), "b": (name, b)}, {"d": name})
    for op, variant in forms:
        expected = []
        for x, y in zip(map(int, a), map(int, b), strict=True):
            if "ftz" in variant:
                x, y = f.flush(x), f.flush(y)
            sign = (x ^ y) & f.sign
            if "xorsign" in variant:
                x, y = x & ~f.sign, y & ~f.sign
            result = extremum(f, x, y, op == "max", "NaN" in variant)
            expected.append(result | sign if "xorsign" in variant and not f.is_nan(result) else result)
        assert_same(f, got[op, variant]["d"], expected, a, b)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_signs(name: str) -> None:
    f = FORMATS[name]
    edges = bits_of(name, exact.edge_bits(f))
    a, b = grid_of(edges, edges)
    forms = {
        "abs": f"abs.{name} %d, %a;",
        "neg": f"neg.{name} %d, %a;",
        "copysign": f"copysign.{name} %d, %a, %b;",
    }
    if name == "f32":
        forms |= {"abs.ftz": "abs.ftz.f32 %d, %a;", "neg.ftz": "neg.ftz.f32 %d, %a;"}
    got = run_forms(forms, {"a": (name, a), "b": (name, b)}, {"d": name})

    def unless_nan(x: int, result: int) -> int:
        return result if not f.is_nan(x) else x if f is F64 else f.nan

    reference = {
        "abs": lambda x, y: unless_nan(x, x & ~f.sign),
        "neg": lambda x, y: unless_nan(x, x ^ f.sign),
        "copysign": lambda x, y: (y & ~f.sign) | (x & f.sign),
        "abs.ftz": lambda x, y: unless_nan(x, f.flush(x) & ~f.sign),
        "neg.ftz": lambda x, y: unless_nan(x, f.flush(x) ^ f.sign),
    }
    for form in forms:
        expected = [reference[form](int(x), int(y)) for x, y in zip(a, b, strict=True)]
        assert got[form]["d"].view(BITS[name]).tolist() == expected, form


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_properties(name: str) -> None:
    f = FORMATS[name]
    a = bits_of(name, exact.edge_bits(f))
    tests = {
        "finite": lambda n, bits: n.kind == "finite",
        "infinite": lambda n, bits: n.kind == "inf",
        "number": lambda n, bits: n.kind != "nan",
        "notanumber": lambda n, bits: n.kind == "nan",
        "normal": lambda n, bits: n.kind == "finite" and (n.significand == 0 or bits & f.inf != 0),
        "subnormal": lambda n, bits: n.kind == "finite" and n.significand != 0 and bits & f.inf == 0,
    }
    got = run_forms({t: f"testp.{t}.{name} %p, %a;" for t in tests}, {"a": (name, a)}, {"p": "pred"})
    for test, holds in tests.items():
        assert got[test]["p"].tolist() == [holds(f.unpack(int(x)), int(x)) for x in a], test


# The errors that the manual or the programming guide allows: relative, or absolute for sin and cos.
APPROXIMATIONS = {
    "rcp.approx": (lambda x: math.inf if x == 0 else 1 / x, 2**-23),
    "sqrt.approx": (lambda x: math.sqrt(x) if x >= 0 else math.nan, 2**-23),
    "rsqrt.approx": (lambda x: math.nan if x < 0 else math.inf if x == 0 else 1 / math.sqrt(x), 2**-22),
    "ex2.approx": (lambda x: 2.0**x if x < 200 else math.inf, 2**-22),
    "lg2.approx": (lambda x: math.nan if x < 0 else -math.inf if x == 0 else math.log2(x), 2**-22),
    "sin.approx": (lambda x: math.sin(x) if math.isfinite(x) else math.nan, 2**-20),
    "cos.approx": (lambda x: math.cos(x) if math.isfinite(x) else math.nan, 2**-20),
    "tanh.approx": (math.tanh, 2**-11),
}


def approximation_inputs() -> np.ndarray:
    rng = np.random.default_rng(7)
    edges = bits_of("f32", exact.edge_bits(F32)).view(np.float32)
    return np.concatenate(
        [
            edges,
            np.float32([-150, -149, -126, -125.5, -1, 0, 0.5, 1, 2, 3, 10, 127, 127.99999, 128, 1000, -1000]),
            rng.uniform(-130, 130, 400).astype(np.float32),
            np.exp(rng.uniform(-80, 80, 400)).astype(np.float32),
        ]
    )


@pytest.mark.parametrize("op", APPROXIMATIONS)
def test_approximations_are_within_what_the_manual_promises(op: str) -> None:
    a = approximation_inputs()
    reference, tolerance = APPROXIMATIONS[op]
    forms = {"": f"{op}.f32 %d, %a;"} | ({} if op == "tanh.approx" else {"ftz": f"{op}.ftz.f32 %d, %a;"})
    got = run_forms(forms, {"a": ("f32", a)}, {"d": "f32"})
    for form in forms:
        for x, d in zip(a, got[form]["d"], strict=True):
            if form == "ftz" and abs(x) < 2**-126:
                x = np.copysign(np.float32(0), x)
            want = math.nan if math.isnan(x) else reference(float(x))
            want = (
                math.copysign(want, x)
                if x == 0 and op in ("rcp.approx", "rsqrt.approx", "sqrt.approx")
                else want
            )
            if form == "ftz" and abs(want) < 2**-126:
                assert d == 0, (x, d)
            elif math.isnan(want):
                assert d.view(np.uint32) == 0x7FFFFFFF, (x, d)
            elif abs(want) > 3.4e38:
                assert abs(d) > np.float32(3.4e38) and (d > 0) == (want > 0), (x, d)
            else:
                slack = tolerance if op in ("sin.approx", "cos.approx") else tolerance * abs(want) + 2**-149
                assert abs(float(d) - want) <= slack, (x, d, want)


def test_powers_of_two_are_exact() -> None:
    a = np.arange(-149, 129, dtype=np.float32)
    got = run_instruction("ex2.approx.f32 %d, %a;", {"a": ("f32", a)}, {"d": "f32"})["d"]
    assert got.tolist() == [math.ldexp(1, int(x)) if x < 128 else math.inf for x in a]


def test_division_approximations() -> None:
    edges = bits_of("f32", exact.edge_bits(F32)).view(np.float32)
    rng = np.random.default_rng(8)
    more = np.exp(rng.uniform(-60, 60, (2, 300))).astype(np.float32)
    a, b = (np.concatenate([g, m]) for g, m in zip(grid_of(edges, edges), more, strict=True))
    forms = {"full": "div.full.f32 %d, %a, %b;", "approx": "div.approx.f32 %d, %a, %b;"}
    got = run_forms(forms, {"a": ("f32", a), "b": ("f32", b)}, {"d": "f32"})
    bits = zip(a.view(np.uint32), b.view(np.uint32), strict=True)
    quotients = bits_of("f32", [exact.div(F32, int(x), int(y)) for x, y in bits]).view(np.float32)
    np.testing.assert_array_max_ulp(got["full"]["d"], quotients, 2)
    huge = np.abs(b) > 2.0**126  # the reciprocal is flushed
    with np.errstate(all="ignore"):
        expected = np.where(huge & ~np.isnan(b), a * np.copysign(np.float32(0), b), quotients)
    np.testing.assert_array_max_ulp(got["approx"]["d"], expected.astype(np.float32), 2)


def test_double_precision_seeds() -> None:
    a = bits_of("f64", exact.edge_bits(F64)).view(np.float64)
    forms = {"rcp": "rcp.approx.ftz.f64 %d, %a;", "rsqrt": "rsqrt.approx.ftz.f64 %d, %a;"}
    got = run_forms(forms, {"a": ("f64", a)}, {"d": "f64"})
    with np.errstate(all="ignore"):
        flushed = np.where(np.abs(a) < 2.0**-1022, np.copysign(0.0, a), a)
        flushed = (flushed.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
        expected = {"rcp": 1 / flushed, "rsqrt": 1 / np.sqrt(flushed)}
    for form in forms:
        d, want = got[form]["d"], expected[form]
        assert not np.any(d[np.isfinite(d)].view(np.uint64) & np.uint64(0xFFFFFFFF))
        want = np.where(np.abs(want) < 2.0**-1022, np.copysign(0.0, want), want)
        np.testing.assert_allclose(d, want, rtol=2.0**-20)
    full = run_instruction("rsqrt.approx.f64 %d, %a;", {"a": ("f64", a)}, {"d": "f64"})["d"]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(full, 1 / np.sqrt(a), rtol=1e-15)


@pytest.mark.parametrize(
    ("line", "arch"),
    [
        ("add.rn.sat.f64 %e, %e, %e;", "sm_80"),
        ("min.xorsign.abs.f32 %d, %a, %a;", "sm_80"),
        ("min.NaN.f32 %d, %a, %a;", "sm_75"),
        ("min.f32 %d, %a, %a, %a;", "sm_90"),
        ("sin.f64 %e, %e;", "sm_80"),
        ("add.rn.cc.f32 %d, %a, %a;", "sm_80"),
    ],
)
def test_what_no_gpu_of_this_kind_has_is_refused(line: str, arch: str) -> None:
    with pytest.raises(FaultError, match=r"not supported: " + line.split()[0].replace(".", r"\.")):
        run_instruction(
            [".reg .f64 %e;", line], {"a": ("f32", np.ones(32, np.float32))}, {"d": "f32"}, arch=arch
        )
