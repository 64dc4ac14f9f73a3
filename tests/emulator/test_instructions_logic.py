"""Logic, shifts and prmt, on registers and on predicates."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_kernels import element_type, grid_of, run_forms, run_instruction

from ladder.run.emulator import FaultError

LOGIC: dict[str, Callable[..., int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
AMOUNTS = np.array([0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 1 << 31, 2**32 - 1], np.uint32)


def words(bits: int) -> np.ndarray:
    rng = np.random.default_rng(bits)
    element = np.dtype(f"u{bits // 8}")
    edges = np.array([0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1], element)
    return np.concatenate([edges, np.frombuffer(rng.bytes(10 * element.itemsize), element)])


@pytest.mark.parametrize("bits", (16, 32, 64))
def test_logic_on_words(bits: int) -> None:
    t = f"b{bits}"
    a, b = grid_of(words(bits), words(bits))
    forms = {op: f"{op}.{t} %d, %a, %b;" for op in LOGIC} | {
        "not": f"not.{t} %d, %a;",
        "cnot": f"cnot.{t} %d, %a;",
        "immediate": f"and.{t} %d, %a, -2;",
    }
    got = run_forms(forms, {"a": (t, a), "b": (t, b)}, {"d": t})
    for op, function in LOGIC.items():
        assert np.array_equal(got[op]["d"], function(a, b)), op
    assert np.array_equal(got["not"]["d"], ~a)
    assert np.array_equal(got["cnot"]["d"], a == 0)
    assert np.array_equal(got["immediate"]["d"], a & ~np.ones_like(a))


def test_logic_on_predicates() -> None:
    a, b = grid_of(np.arange(2, dtype=np.uint32), np.arange(2, dtype=np.uint32))
    forms = {op: f"{op}.pred %d, %a, %b;" for op in LOGIC} | {
        "not": "not.pred %d, %a;",
        "mov": "mov.pred %d, %b;",
        "same": "mov.pred %d, %a; xor.pred %d, %d, %d;",
    }
    got = run_forms(forms, {"a": ("pred", a), "b": ("pred", b)}, {"d": "pred"})
    for op, function in LOGIC.items():
        assert got[op]["d"].tolist() == function(a, b).tolist()
    assert got["not"]["d"].tolist() == (1 - a).tolist()
    assert got["mov"]["d"].tolist() == b.tolist()
    assert not got["same"]["d"].any()


def test_lop3_with_every_table() -> None:
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(0, 2**32, 33, dtype=np.uint32) for _ in range(3))
    forms = {table: f"lop3.b32 %d, %a, %b, %c, {table};" for table in range(256)}
    got = run_forms(forms, {"a": ("b32", a), "b": ("b32", b), "c": ("b32", c)}, {"d": "b32"})
    for table in forms:
        expected = np.zeros_like(a)
        for row in range(8):
            if table >> row & 1:
                terms = [v if row >> bit & 1 else ~v for v, bit in ((a, 2), (b, 1), (c, 0))]
                expected |= terms[0] & terms[1] & terms[2]
        assert np.array_equal(got[table]["d"], expected), table


def test_lop3_with_a_predicate() -> None:
    a, b, q = grid_of(
        np.array([0, 1, 6], np.uint32), np.array([0, 1, 4], np.uint32), np.arange(2, dtype=np.uint32)
    )
    inputs = {"a": ("b32", a), "b": ("b32", b), "q": ("pred", q)}
    forms = {
        "or": "lop3.or.b32 %d|%p, %a, %b, 0, 192, %q;",
        "and": "lop3.and.b32 %d|%p, %a, %b, 0, 192, %q;",
        "sink": "mov.u32 %d, 5; lop3.and.b32 _|%p, %a, %b, 0, 192, !%q;",
    }
    got = run_forms(forms, inputs, {"d": "b32", "p": "pred"})
    both = a & b
    assert np.array_equal(got["or"]["d"], both) and np.array_equal(got["and"]["d"], both)
    assert got["or"]["p"].tolist() == ((both != 0) | (q == 1)).astype(int).tolist()
    assert got["and"]["p"].tolist() == ((both != 0) & (q == 1)).astype(int).tolist()
    assert got["sink"]["p"].tolist() == ((both != 0) & (q == 0)).astype(int).tolist()
    assert got["sink"]["d"].tolist() == [5] * both.size


@pytest.mark.parametrize("bits", (16, 32, 64))
def test_shifts_clamp_their_amount(bits: int) -> None:
    a, b = grid_of(words(bits), AMOUNTS)
    mask = (1 << bits) - 1
    unsigned = run_forms(
        {
            "shl": f"shl.b{bits} %d, %a, %b;",
            "shr.u": f"shr.u{bits} %d, %a, %b;",
            "shr.b": f"shr.b{bits} %d, %a, %b;",
        },
        {"a": (f"b{bits}", a), "b": ("u32", b)},
        {"d": f"b{bits}"},
    )
    pairs = [(int(x), min(int(n), 64)) for x, n in zip(a, b, strict=True)]
    assert unsigned["shl"]["d"].tolist() == [x << n & mask for x, n in pairs]
    assert unsigned["shr.u"]["d"].tolist() == [x >> n for x, n in pairs]
    assert unsigned["shr.b"]["d"].tolist() == [x >> n for x, n in pairs]
    signed = a.view(element_type(f"s{bits}"))
    got = run_instruction(
        f"shr.s{bits} %d, %a, %b;", {"a": (f"s{bits}", signed), "b": ("u32", b)}, {"d": f"s{bits}"}
    )
    assert got["d"].tolist() == [int(x) >> n for x, (_, n) in zip(signed, pairs, strict=True)]


def test_funnel_shifts() -> None:
    a, b, c = grid_of(words(32)[::3], words(32)[::2], AMOUNTS)
    forms = {f"{d}.{mode}": f"shf.{d}.{mode}.b32 %d, %a, %b, %c;" for d in "lr" for mode in ("wrap", "clamp")}
    got = run_forms(forms, {"a": ("b32", a), "b": ("b32", b), "c": ("u32", c)}, {"d": "b32"})
    for form in forms:
        for i, (x, y, amount) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
            n = amount % 32 if form.endswith("wrap") else min(amount, 32)
            both = y << 32 | x
            expected = both << n >> 32 if form[0] == "l" else both >> n
            assert got[form]["d"][i] == expected & 0xFFFFFFFF, (form, x, y, amount)


def permuted(a: int, b: int, selectors: list[int]) -> int:
    sources = [(b << 32 | a) >> 8 * i & 255 for i in range(8)]
    result = 0
    for i, selector in enumerate(selectors):
        byte = sources[selector & 7]
        if selector & 8:
            byte = 255 if byte & 128 else 0
        result |= byte << 8 * i
    return result


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 3), min_size=1, max_size=64), st.integers(0, 2**16 - 1)
)
def test_prmt_selects_bytes_and_signs(rows: list[tuple[int, int, int]], constant: int) -> None:
    a, b, c = (np.array([row[i] for row in rows], np.uint32) for i in range(3))
    forms = {"register": "prmt.b32 %d, %a, %b, %c;", "constant": f"prmt.b32 %d, %a, %b, {constant};"}
    got = run_forms(forms, {"a": ("b32", a), "b": ("b32", b), "c": ("b32", c)}, {"d": "b32"})
    for i, (x, y, z) in enumerate(rows):
        assert got["register"]["d"][i] == permuted(x, y, [z >> 4 * k & 15 for k in range(4)])
        assert got["constant"]["d"][i] == permuted(x, y, [constant >> 4 * k & 15 for k in range(4)])


def test_prmt_modes() -> None:
    # Result bytes, lowest first, for c = 0, 1, 2, 3, from the manual's table.
    modes = {
        "f4e": ([0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]),
        "b4e": ([0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]),
        "rc8": ([0] * 4, [1] * 4, [2] * 4, [3] * 4),
        "ecl": ([0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]),
        "ecr": ([0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]),
        "rc16": ([0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]),
    }
    c = np.arange(8, dtype=np.uint32)
    a, b = np.full(8, 0x83828180, np.uint32), np.full(8, 0x87868584, np.uint32)
    forms = {mode: f"prmt.b32.{mode} %d, %a, %b, %c;" for mode in modes}
    got = run_forms(forms, {"a": ("b32", a), "b": ("b32", b), "c": ("b32", c)}, {"d": "b32"})
    for mode, rows in modes.items():
        expected = [permuted(0x83828180, 0x87868584, rows[i % 4]) for i in range(8)]
        assert got[mode]["d"].tolist() == expected, mode


@pytest.mark.parametrize(
    "line", ["lop3.b32 %d, %a, %a, %a, 256;", "shl.s32 %d, %a, 1;", "and.b32 %d, %a, %a, %a;"]
)
def test_what_does_not_exist_is_refused(line: str) -> None:
    with pytest.raises(FaultError, match="not supported"):
        run_instruction(line, {"a": ("b32", np.zeros(32, np.uint32))}, {"d": "b32"})
