"""setp, set, selp and slct in all comparisons, types and combinations with a predicate."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction

import exact_float as exact
import numpy as np
import pytest
from exact_float import BF16, F16, F32, F64, Format
from ptx_kernels import element_type, grid_of, run_forms, run_instruction

from ladder.run.emulator import FaultError

FLOATS = {"f32": F32, "f64": F64, "f16": F16, "bf16": BF16}
ORDERED: dict[str, Callable[..., bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
FLOAT_COMPARISONS = (*ORDERED, *(op + "u" for op in ORDERED), "num", "nan")
BOOLEANS: dict[str, Callable[..., int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def number(f: Format, bits: int, ftz: bool = False) -> Fraction | float | None:
    """The value of the bits; None for NaN."""
    unpacked = f.unpack(f.flush(bits) if ftz else bits)
    if unpacked.kind == "nan":
        return None
    if unpacked.kind == "inf":
        return float("-inf") if unpacked.negative else float("inf")
    return unpacked.value


def holds(comparison: str, a: Fraction | float | None, b: Fraction | float | None) -> bool:
    unordered = a is None or b is None
    if comparison in ("num", "nan"):
        return unordered == (comparison == "nan")
    if comparison in ORDERED:
        return not unordered and ORDERED[comparison](a, b)
    return unordered or ORDERED[comparison[:-1]](a, b)


def integer_edges(t: str) -> np.ndarray:
    bits = int(t[1:])
    values = [0, 1, 2, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << (bits - 1)) + 1, (1 << bits) - 1]
    return np.array(values, np.dtype(f"u{bits // 8}")).view(element_type(t))


@pytest.mark.parametrize("t", ("u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64"))
def test_comparisons_of_integers(t: str) -> None:
    a, b = grid_of(integer_edges(t), integer_edges(t))
    comparisons = {"b": {"eq", "ne"}, "s": {*ORDERED}, "u": {*ORDERED, *UNSIGNED}}[t[0]]
    forms = {c: f"setp.{c}.{t} %p, %a, %b;" for c in comparisons}
    got = run_forms(forms, {"a": (t, a), "b": (t, b)}, {"p": "pred"})
    for c in comparisons:
        expected = (ORDERED | UNSIGNED)[c](a, b)
        assert got[c]["p"].tolist() == expected.astype(int).tolist(), c


@pytest.mark.parametrize("name", FLOATS)
def test_comparisons_of_floats(name: str) -> None:
    f = FLOATS[name]
    edges = np.array(exact.edge_bits(f), np.dtype(f"u{f.bits // 8}"))
    a, b = grid_of(edges, edges)
    forms = {(c, ""): f"setp.{c}.{name} %p, %a, %b;" for c in FLOAT_COMPARISONS}
    if name in ("f32", "f16"):
        forms |= {(c, ".ftz"): f"setp.{c}.ftz.{name} %p, %a, %b;" for c in FLOAT_COMPARISONS}
    got = run_forms(forms, {"a": (name, a), "b": (name, b)}, {"p": "pred"})
    for c, ftz in forms:
        values = {int(bits): number(f, int(bits), bool(ftz)) for bits in edges}
        expected = [int(holds(c, values[int(x)], values[int(y)])) for x, y in zip(a, b, strict=True)]
        assert got[c, ftz]["p"].tolist() == expected, (c, ftz)


@pytest.mark.parametrize("boolean", BOOLEANS)
@pytest.mark.parametrize("negated", ("", "!"))
def test_a_comparison_combined_with_a_predicate_has_two_results(boolean: str, negated: str) -> None:
    a, b, c = grid_of(
        np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32), np.arange(2, dtype=np.uint32)
    )
    inputs = {"a": ("s32", a), "b": ("s32", b), "c": ("pred", c)}
    forms = {
        "both": f"setp.lt.{boolean}.s32 %p|%q, %a, %b, {negated}%c;",
        "first": f"setp.lt.{boolean}.s32 %p, %a, %b, {negated}%c; mov.pred %q, 0;",
        "second": f"setp.lt.{boolean}.s32 _|%q, %a, %b, {negated}%c; mov.pred %p, 1;",
    }
    got = run_forms(forms, inputs, {"p": "pred", "q": "pred"})
    combine = BOOLEANS[boolean]
    third = 1 - c if negated else c
    p, q = combine((a < b).astype(int), third), combine((a >= b).astype(int), third)
    assert got["both"]["p"].tolist() == p.tolist() and got["both"]["q"].tolist() == q.tolist()
    assert got["first"]["p"].tolist() == p.tolist()
    assert got["second"]["q"].tolist() == q.tolist() and got["second"]["p"].all()


def test_a_second_destination_without_a_predicate_is_the_complement() -> None:
    a, b = grid_of(np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32))
    got = run_instruction(
        "setp.le.s32 %p|%q, %a, %b;", {"a": ("s32", a), "b": ("s32", b)}, {"p": "pred", "q": "pred"}
    )
    assert got["p"].tolist() == (a <= b).astype(int).tolist()
    assert got["q"].tolist() == (a > b).astype(int).tolist()


def test_a_predicate_may_be_source_and_destination() -> None:
    a, c = grid_of(np.arange(4, dtype=np.int32), np.arange(2, dtype=np.uint32))
    got = run_instruction(
        ["mov.pred %p, %c;", "setp.lt.and.s32 %p|%q, %a, 2, %p;"],
        {"a": ("s32", a), "c": ("pred", c)},
        {"p": "pred", "q": "pred"},
    )
    assert got["p"].tolist() == ((a < 2) & (c == 1)).astype(int).tolist()
    assert got["q"].tolist() == ((a >= 2) & (c == 1)).astype(int).tolist()


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_packed_comparisons(name: str) -> None:
    f = FLOATS[name]
    edges = np.array(exact.edge_bits(f), np.uint16)
    a, b = (v[: v.size // 2 * 2] for v in grid_of(edges, edges))
    inputs = {"a": ("b32", a.view(np.uint32)), "b": ("b32", b.view(np.uint32))}
    pairs = run_forms(
        {c: f"setp.{c}.{name}x2 %p|%q, %a, %b;" for c in FLOAT_COMPARISONS},
        inputs,
        {"p": "pred", "q": "pred"},
    )
    words = run_forms(
        {c: f"set.{c}.u32.{name}x2 %d, %a, %b;" for c in FLOAT_COMPARISONS}, inputs, {"d": "u32"}
    )
    halves = run_forms(
        {c: f"set.{c}.{name}x2.{name}x2 %d, %a, %b;" for c in FLOAT_COMPARISONS}, inputs, {"d": "b32"}
    )
    one = f.bias << f.mantissa_bits
    for c in FLOAT_COMPARISONS:
        expected = np.array(
            [holds(c, number(f, int(x)), number(f, int(y))) for x, y in zip(a, b, strict=True)]
        )
        assert pairs[c]["p"].tolist() == expected[0::2].astype(int).tolist(), c
        assert pairs[c]["q"].tolist() == expected[1::2].astype(int).tolist(), c
        assert words[c]["d"].view(np.uint16).tolist() == np.where(expected, 0xFFFF, 0).tolist(), c
        assert halves[c]["d"].view(np.uint16).tolist() == np.where(expected, one, 0).tolist(), c


def test_set_writes_ones_or_one() -> None:
    a, b, c = grid_of(integer_edges("s32"), integer_edges("s32"), np.arange(2, dtype=np.uint32))
    x = a.astype(np.float32)
    inputs = {"a": ("s32", a), "b": ("s32", b), "x": ("f32", x), "c": ("pred", c)}
    forms = {
        "u32": "set.lt.u32.s32 %d, %a, %b;",
        "s32": "set.ge.s32.u32 %d, %a, %b;",
        "f32": "set.ne.f32.s32 %d, %a, %b;",
        "and": "set.lt.and.u32.s32 %d, %a, %b, !%c;",
        "float": "set.ltu.ftz.u32.f32 %d, %x, 0f3F800000;",
        "xor": "set.gt.xor.f32.f32 %d, %x, 0f00000000, %c;",
    }
    got = run_forms(forms, inputs, {"d": "b32"})
    ones, one = 0xFFFFFFFF, 0x3F800000
    expected = {
        "u32": np.where(a < b, ones, 0),
        "s32": np.where(a.view(np.uint32) >= b.view(np.uint32), ones, 0),
        "f32": np.where(a != b, one, 0),
        "and": np.where((a < b) & (c == 0), ones, 0),
        "float": np.where(x < 1, ones, 0),
        "xor": np.where((x > 0) ^ (c == 1), one, 0),
    }
    for form in forms:
        assert got[form]["d"].tolist() == expected[form].tolist(), form


def test_set_of_half_precision() -> None:
    a = np.array([0, 1, np.nan, -1], np.float16)
    got = run_forms(
        {
            "f16": "set.lt.f16.f16 %d, %a, %b;",
            "u16": "set.ltu.u16.f16 %d, %a, %b;",
        },
        {"a": ("f16", a), "b": ("f16", np.zeros(4, np.float16))},
        {"d": "b16"},
    )
    assert got["f16"]["d"].tolist() == [0, 0, 0, 0x3C00]
    assert got["u16"]["d"].tolist() == [0, 0, 0xFFFF, 0xFFFF]


@pytest.mark.parametrize("t", ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"))
def test_selection_by_a_predicate(t: str) -> None:
    rng = np.random.default_rng(1)
    element = np.dtype(element_type(t))
    a, b = (np.frombuffer(rng.bytes(50 * element.itemsize), element) for _ in range(2))
    c = rng.integers(0, 2, 50, dtype=np.uint32)
    forms = {"plain": f"selp.{t} %d, %a, %b, %c;", "negated": f"selp.{t} %d, %a, %b, !%c;"}
    got = run_forms(forms, {"a": (t, a), "b": (t, b), "c": ("pred", c)}, {"d": t})
    assert got["plain"]["d"].tobytes() == np.where(c == 1, a, b).tobytes()
    assert got["negated"]["d"].tobytes() == np.where(c == 1, b, a).tobytes()


@pytest.mark.parametrize("t", ("b16", "u32", "f32", "s64", "f64"))
def test_selection_by_a_sign(t: str) -> None:
    element = np.dtype(element_type(t))
    c = np.array([0, 1, -1, 2**31 - 1, -(2**31)], np.int32)
    x = np.array([0.0, -0.0, 1e-42, -1e-42, np.inf, -np.inf, np.nan, 3, -3], np.float32)
    rng = np.random.default_rng(2)

    def operands(count: int) -> tuple[np.ndarray, np.ndarray]:
        a, b = (np.frombuffer(rng.bytes(count * element.itemsize), element) for _ in range(2))
        return a, b

    a, b = operands(c.size)
    got = run_instruction(
        f"slct.{t}.s32 %d, %a, %b, %c;", {"a": (t, a), "b": (t, b), "c": ("s32", c)}, {"d": t}
    )
    assert got["d"].tobytes() == np.where(c >= 0, a, b).tobytes()
    a, b = operands(x.size)
    forms = {"": f"slct.{t}.f32 %d, %a, %b, %c;", "ftz": f"slct.ftz.{t}.f32 %d, %a, %b, %c;"}
    floats = run_forms(forms, {"a": (t, a), "b": (t, b), "c": ("f32", x)}, {"d": t})
    assert floats[""]["d"].tobytes() == np.where(x >= 0, a, b).tobytes()
    flushed = np.where(np.abs(x) < 2.0**-126, 0, x)
    assert floats["ftz"]["d"].tobytes() == np.where(flushed >= 0, a, b).tobytes()


@pytest.mark.parametrize(
    "line",
    [
        "setp.lo.f32 %p, %a, %a;",
        "setp.ltu.s32 %p, %i, %i;",
        "setp.eq.f16x2 %p, %i, %i;",
        "setp.f32 %p, %a, %a;",
    ],
)
def test_comparisons_that_do_not_exist_are_refused(line: str) -> None:
    with pytest.raises(FaultError, match=r"not supported: setp"):
        run_instruction([".reg .b32 %i;", line], {"a": ("f32", np.zeros(32))}, {"p": "pred"})
