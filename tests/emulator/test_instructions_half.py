"""Compares f16, bf16 and their packed forms with rational numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import exact_float as exact
import numpy as np
import pytest
from exact_float import BF16, F16, F32, Format
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_kernels import grid_of, run_forms, run_instruction

from ladder.run.emulator import FaultError

FORMATS = {"f16": F16, "bf16": BF16}
Operation = Callable[..., int]


def sat(f: Format, bits: int) -> int:
    number = f.unpack(bits)
    one = f.bias << f.mantissa_bits
    return 0 if number.kind == "nan" or number.negative else min(bits, one)


def relu(f: Format, bits: int) -> int:
    return bits if f.is_nan(bits) or not bits & f.sign else 0


def flushed(f: Format, operation: Callable[[str], int]) -> int:
    """An operation's result with .ftz: flushed if it is subnormal, even if only before rounding."""
    towards_zero = operation(exact.RZ)
    return towards_zero & f.sign if towards_zero & f.inf == 0 else operation(exact.RN)


def extremum(f: Format, a: int, b: int, largest: bool, nan: bool) -> int:
    if f.is_nan(a) or f.is_nan(b):
        return f.nan if nan or (f.is_nan(a) and f.is_nan(b)) else b if f.is_nan(a) else a

    def key(bits: int) -> int:
        return -(bits & ~f.sign) - 1 if bits & f.sign else bits

    return max(a, b, key=key) if largest else min(a, b, key=key)


def check(name: str, forms: dict[str, tuple[str, Operation]], columns: dict[str, np.ndarray]) -> None:
    """Checks each form as written, such as .f16, and packed as .f16x2 with the operands of two threads."""
    plain = {form: line.replace("TYPE", name) for form, (line, _) in forms.items()}
    got = run_forms(plain, {r: ("b16", v) for r, v in columns.items()}, {"d": "b16"})
    packed = {form: line.replace("TYPE", name + "x2") for form, (line, _) in forms.items()}
    pairs = {r: v[: v.size // 2 * 2].view(np.uint32) for r, v in columns.items()}
    both = run_forms(packed, {r: ("b32", v) for r, v in pairs.items()}, {"d": "b32"})
    rows = list(zip(*[[int(x) for x in v] for v in columns.values()], strict=True))
    for form, (line, function) in forms.items():
        expected = [function(*row) for row in rows]
        for i, (have, want) in enumerate(zip(got[form]["d"].tolist(), expected, strict=True)):
            assert have == want, f"{line} of {[hex(x) for x in rows[i]]}: {have:#x}, not {want:#x}"
        assert both[form]["d"].view(np.uint16).tolist() == expected[: 2 * both[form]["d"].size], packed[form]


@pytest.mark.parametrize("name", FORMATS)
def test_sums_and_products_round_once(name: str) -> None:
    f = FORMATS[name]
    rng = random.Random(1)
    edges = np.array(exact.edge_bits(f), np.uint16)
    more = np.array([rng.getrandbits(16) for _ in range(2000)], np.uint16)
    a, b = (np.concatenate([g, more[i::2]]) for i, g in enumerate(grid_of(edges, edges)))
    forms: dict[str, tuple[str, Operation]] = {}
    for op, function in (("add", exact.add), ("sub", exact.sub), ("mul", exact.mul)):
        forms[op] = (f"{op}.TYPE %d, %a, %b;", lambda x, y, g=function: g(f, x, y))
        forms[op + ".rn"] = (f"{op}.rn.TYPE %d, %a, %b;", lambda x, y, g=function: g(f, x, y))
        if name == "f16":
            forms[op + ".sat"] = (f"{op}.sat.TYPE %d, %a, %b;", lambda x, y, g=function: sat(f, g(f, x, y)))
            forms[op + ".ftz"] = (
                f"{op}.ftz.TYPE %d, %a, %b;",
                lambda x, y, g=function: flushed(f, lambda mode: g(f, f.flush(x), f.flush(y), mode)),
            )
    check(name, forms, {"a": a, "b": b})


@pytest.mark.parametrize("name", FORMATS)
def test_fma_rounds_once(name: str) -> None:
    f = FORMATS[name]
    rng = random.Random(2)
    edges = exact.edge_bits(f)
    triples = [[rng.choice(edges) for _ in range(3)] for _ in range(1500)]
    for _ in range(1500):
        x, y = rng.getrandbits(16), rng.getrandbits(16)
        product = exact.mul(f, x, y)
        triples.append(
            [x, y, rng.choice([product ^ f.sign, 1, f.sign | 1, rng.getrandbits(16), f.smallest_normal])]
        )
    a, b, c = (np.array(column, np.uint16) for column in zip(*triples, strict=True))
    forms: dict[str, tuple[str, Operation]] = {
        "fma": ("fma.rn.TYPE %d, %a, %b, %c;", lambda *x: exact.fma(f, *x)),
        "relu": ("fma.rn.relu.TYPE %d, %a, %b, %c;", lambda *x: relu(f, exact.fma(f, *x))),
    }
    if name == "f16":
        forms["sat"] = ("fma.rn.sat.TYPE %d, %a, %b, %c;", lambda *x: sat(f, exact.fma(f, *x)))
        forms["ftz"] = (
            "fma.rn.ftz.TYPE %d, %a, %b, %c;",
            lambda *x: flushed(f, lambda mode: exact.fma(f, *map(f.flush, x), mode)),
        )
    check(name, forms, {"a": a, "b": b, "c": c})


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["f16", "bf16"]),
    st.lists(st.tuples(*[st.integers(0, 2**16 - 1)] * 3), min_size=64, max_size=128),
)
def test_fma_of_any_bits(name: str, triples: list[tuple[int, int, int]]) -> None:
    f = FORMATS[name]
    a, b, c = (np.array(column, np.uint16) for column in zip(*triples, strict=True))
    check(
        name, {"fma": ("fma.rn.TYPE %d, %a, %b, %c;", lambda *x: exact.fma(f, *x))}, {"a": a, "b": b, "c": c}
    )


@pytest.mark.parametrize("name", FORMATS)
def test_minimum_maximum_and_signs(name: str) -> None:
    f = FORMATS[name]
    edges = np.array(exact.edge_bits(f), np.uint16)
    a, b = grid_of(edges, edges)
    forms: dict[str, tuple[str, Operation]] = {
        "neg": ("neg.TYPE %d, %a;", lambda x, y: f.nan if f.is_nan(x) else x ^ 0x8000),
        "abs": ("abs.TYPE %d, %a;", lambda x, y: f.nan if f.is_nan(x) else x & 0x7FFF),
    }
    for op, nan, xorsign, ftz in itertools.product(
        ("min", "max"), ("", ".NaN"), ("", ".xorsign.abs"), ("", ".ftz")
    ):
        if ftz and name == "bf16":
            continue

        def reference(
            x: int, y: int, op: str = op, nan: str = nan, xorsign: str = xorsign, ftz: str = ftz
        ) -> int:
            if ftz:
                x, y = f.flush(x), f.flush(y)
            sign = (x ^ y) & f.sign
            if xorsign:
                x, y = x & 0x7FFF, y & 0x7FFF
            result = extremum(f, x, y, op == "max", bool(nan))
            return result | sign if xorsign and not f.is_nan(result) else result

        forms[op + ftz + nan + xorsign] = (f"{op}{ftz}{nan}{xorsign}.TYPE %d, %a, %b;", reference)
    if name == "f16":
        forms["neg.ftz"] = (
            "neg.ftz.TYPE %d, %a;",
            lambda x, y: f.nan if f.is_nan(x) else f.flush(x) ^ 0x8000,
        )
        forms["abs.ftz"] = (
            "abs.ftz.TYPE %d, %a;",
            lambda x, y: f.nan if f.is_nan(x) else f.flush(x) & 0x7FFF,
        )
    check(name, forms, {"a": a, "b": b})


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("op", ["ex2", "tanh"])
def test_approximations(name: str, op: str) -> None:
    f = FORMATS[name]
    a = np.arange(0, 2**16, 7, dtype=np.uint16)
    ftz = ".ftz" if (op, name) == ("ex2", "bf16") else ""
    forms = {"one": f"{op}.approx{ftz}.{name} %d, %a;"}
    got = run_forms(forms, {"a": ("b16", a)}, {"d": "b16"})["one"]["d"]
    packed = run_instruction(
        f"{op}.approx{ftz}.{name}x2 %d, %a;",
        {"a": ("b32", a[: a.size // 2 * 2].view(np.uint32))},
        {"d": "b32"},
    )["d"]
    assert packed.view(np.uint16).tolist() == got[: 2 * packed.size].tolist()
    for x, d in zip(a.tolist(), got.tolist(), strict=True):
        number, result = f.unpack(x), f.unpack(d)
        if number.kind == "nan":
            assert d == f.nan
            continue
        value = (
            math.copysign(math.inf, -number.negative or 1) if number.kind == "inf" else float(number.value)
        )
        want = math.tanh(value) if op == "tanh" else 2.0**value if value < 200 else math.inf
        if want >= float(f.unpack(f.largest).value) * 1.001:
            assert d == f.inf, hex(x)
        else:
            ulp = 2.0 ** max(math.frexp(want)[1] - 1 - f.mantissa_bits, 1 - f.bias - f.mantissa_bits)
            assert abs(float(result.value) - want) <= ulp, hex(x)


def test_every_f16_survives_a_round_trip_through_f32() -> None:
    a = np.arange(2**16, dtype=np.uint16)
    got = run_instruction(
        ["cvt.f32.f16 %w, %a;", "cvt.rn.f16.f32 %d, %w;"], {"a": ("b16", a)}, {"w": "f32", "d": "b16"}
    )
    finite = (a & 0x7FFF) <= 0x7C00
    assert np.array_equal(got["w"][finite], a[finite].view(np.float16).astype(np.float32))
    assert np.array_equal(got["d"], np.where(finite, a, 0x7FFF))
    assert np.all(got["w"][~finite].view(np.uint32) == F32.nan)


@pytest.mark.parametrize(
    ("line", "arch"),
    [
        ("add.bf16 %d, %a, %a;", "sm_80"),
        ("fma.rn.bf16 %d, %a, %a, %a;", "sm_75"),
        ("min.f16 %d, %a, %a;", "sm_75"),
        ("ex2.approx.ftz.bf16 %d, %a;", "sm_80"),
        ("add.sat.bf16 %d, %a, %a;", "sm_90"),
        ("add.rz.f16 %d, %a, %a;", "sm_90"),
    ],
)
def test_what_the_virtual_gpu_lacks_is_refused(line: str, arch: str) -> None:
    with pytest.raises(FaultError, match="not supported: " + line.split()[0].replace(".", r"\.")):
        run_instruction(line, {"a": ("b16", np.zeros(32, np.uint16))}, {"d": "b16"}, arch=arch)
