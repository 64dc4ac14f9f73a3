"""Compares integer instructions with Python's integers, on edge values and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_kernels import element_type, grid_of, run_forms, run_instruction

from ladder.run.emulator import FaultError

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
WORDS = ("u32", "s32", "u64", "s64")


def width(ptx_type: str) -> int:
    return int(ptx_type[1:])


def wrap(value: int, ptx_type: str) -> int:
    """Wraps the value to this type: the equal one modulo 2^width."""
    bits = width(ptx_type)
    value &= (1 << bits) - 1
    return value - (1 << bits) if ptx_type[0] == "s" and value >> (bits - 1) else value


def limits(ptx_type: str) -> tuple[int, int]:
    bits = width(ptx_type)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if ptx_type[0] == "s" else (0, (1 << bits) - 1)


def edges(ptx_type: str) -> np.ndarray:
    bits = width(ptx_type)
    low, high = limits(ptx_type)
    values = {
        low,
        low + 1,
        high,
        high - 1,
        0,
        1,
        2,
        3,
        7,
        10,
        255,
        256,
        1 << (bits // 2),
        (1 << (bits // 2)) - 1,
    }
    values |= {-v for v in values}
    rng = random.Random(bits)
    values |= {rng.getrandbits(bits) for _ in range(6)}
    return np.array(sorted({wrap(v, ptx_type) for v in values}), dtype=element_type(ptx_type))


def clamp(value: int, ptx_type: str) -> int:
    low, high = limits(ptx_type)
    return max(low, min(high, value))


def check(
    forms: dict[str, tuple[str, Callable[..., int]]],
    inputs: dict[str, tuple[str, np.ndarray]],
    result: str,
) -> None:
    """Runs each form's line and compares each thread's result with the form's function of the inputs."""
    got = run_forms({name: line for name, (line, _) in forms.items()}, inputs, {"d": result})
    columns = [[int(v) for v in values] for _, values in inputs.values()]
    for name, (_, function) in forms.items():
        expected = [wrap(function(*row), result) for row in zip(*columns, strict=True)]
        found = got[name]["d"].tolist()
        wrong = [i for i, (have, want) in enumerate(zip(found, expected, strict=True)) if have != want]
        if wrong:
            i = wrong[0]
            row = [column[i] for column in columns]
            raise AssertionError(f"{forms[name][0]} of {row}: {found[i]:#x}, not {expected[i]:#x}")


def quotient(a: int, b: int) -> int:
    """Divides, rounding towards zero; like the hardware, a division by zero gives all ones."""
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - quotient(a, b) * b


@pytest.mark.parametrize("t", INTEGERS)
def test_two_operands(t: str) -> None:
    bits = width(t)
    forms = {
        "add": (f"add.{t} %d, %a, %b;", lambda a, b: a + b),
        "sub": (f"sub.{t} %d, %a, %b;", lambda a, b: a - b),
        "mul.lo": (f"mul.lo.{t} %d, %a, %b;", lambda a, b: a * b),
        "mul.hi": (f"mul.hi.{t} %d, %a, %b;", lambda a, b: a * b >> bits),
        "div": (f"div.{t} %d, %a, %b;", quotient),
        "rem": (f"rem.{t} %d, %a, %b;", remainder),
        "min": (f"min.{t} %d, %a, %b;", min),
        "max": (f"max.{t} %d, %a, %b;", max),
    }
    a, b = grid_of(edges(t), edges(t))
    check(forms, {"a": (t, a), "b": (t, b)}, t)


def test_saturating_and_relu() -> None:
    forms = {
        "add.sat": ("add.sat.s32 %d, %a, %b;", lambda a, b: clamp(a + b, "s32")),
        "sub.sat": ("sub.sat.s32 %d, %a, %b;", lambda a, b: clamp(a - b, "s32")),
        "min.relu": ("min.relu.s32 %d, %a, %b;", lambda a, b: max(min(a, b), 0)),
        "max.relu": ("max.relu.s32 %d, %a, %b;", lambda a, b: max(a, b, 0)),
    }
    a, b = grid_of(edges("s32"), edges("s32"))
    check(forms, {"a": ("s32", a), "b": ("s32", b)}, "s32")


@pytest.mark.parametrize("t", ("u16", "s16", "u32", "s32"))
def test_wide_products(t: str) -> None:
    wide = f"{t[0]}{2 * width(t)}"
    a, b, c = grid_of(edges(t), edges(t)[::2], edges(wide)[::5])
    forms = {
        "mul.wide": (f"mul.wide.{t} %d, %a, %b;", lambda a, b, c: a * b),
        "mad.wide": (f"mad.wide.{t} %d, %a, %b, %c;", lambda a, b, c: a * b + c),
    }
    check(forms, {"a": (t, a), "b": (t, b), "c": (wide, c)}, wide)


@pytest.mark.parametrize("t", INTEGERS)
def test_three_operands(t: str) -> None:
    bits = width(t)
    some = edges(t)[::3]
    a, b, c = grid_of(some, some, some)
    forms = {
        "mad.lo": (f"mad.lo.{t} %d, %a, %b, %c;", lambda a, b, c: a * b + c),
        "mad.hi": (f"mad.hi.{t} %d, %a, %b, %c;", lambda a, b, c: (a * b >> bits) + c),
        "sad": (f"sad.{t} %d, %a, %b, %c;", lambda a, b, c: c + abs(a - b)),
    }
    if t == "s32":
        forms["mad.hi.sat"] = (
            "mad.hi.sat.s32 %d, %a, %b, %c;",
            lambda a, b, c: clamp((a * b >> 32) + c, "s32"),
        )
    check(forms, {"a": (t, a), "b": (t, b), "c": (t, c)}, t)


@pytest.mark.parametrize("t", ("u32", "s32"))
def test_24_bit_products(t: str) -> None:
    short = f"{t[0]}24"
    some = edges(t)[::2]
    a, b, c = grid_of(some, some, some[::2])

    def product(a: int, b: int) -> int:
        return wrap(a, short) * wrap(b, short)

    forms = {
        "mul24.lo": (f"mul24.lo.{t} %d, %a, %b;", lambda a, b, c: product(a, b)),
        "mul24.hi": (f"mul24.hi.{t} %d, %a, %b;", lambda a, b, c: product(a, b) >> 16),
        "mad24.lo": (f"mad24.lo.{t} %d, %a, %b, %c;", lambda a, b, c: product(a, b) + c),
        "mad24.hi": (f"mad24.hi.{t} %d, %a, %b, %c;", lambda a, b, c: (product(a, b) >> 16) + c),
    }
    if t == "s32":
        forms["mad24.hi.sat"] = (
            "mad24.hi.sat.s32 %d, %a, %b, %c;",
            lambda a, b, c: clamp(wrap(product(a, b) >> 16, "s32") + c, "s32"),
        )
    check(forms, {"a": (t, a), "b": (t, b), "c": (t, c)}, t)


@pytest.mark.parametrize("t", ("s16", "s32", "s64"))
def test_signs(t: str) -> None:
    forms = {"abs": (f"abs.{t} %d, %a;", abs), "neg": (f"neg.{t} %d, %a;", lambda a: -a)}
    check(forms, {"a": (t, edges(t))}, t)


def find_msb(a: int, bits: int) -> int:
    a = ~a if a < 0 else a
    return a.bit_length() - 1


@pytest.mark.parametrize("bits", (32, 64))
def test_counting_bits(bits: int) -> None:
    u, s = f"u{bits}", f"s{bits}"

    def shift_amount(a: int) -> int:
        found = find_msb(a, bits)
        return found if found < 0 else bits - 1 - found

    powers = np.array(
        [1 << i for i in range(bits)] + [(1 << i) - 1 for i in range(bits)], dtype=element_type(u)
    )
    a = np.concatenate([edges(u), powers, ~powers])
    unsigned = {
        "popc": (f"popc.b{bits} %d, %a;", lambda a: bin(a).count("1")),
        "clz": (f"clz.b{bits} %d, %a;", lambda a: bits - a.bit_length()),
        "bfind": (f"bfind.u{bits} %d, %a;", lambda a: find_msb(a, bits)),
        "bfind.shiftamt": (f"bfind.shiftamt.u{bits} %d, %a;", shift_amount),
    }
    check(unsigned, {"a": (u, a)}, "u32")
    signed = {
        "bfind": (f"bfind.s{bits} %d, %a;", lambda a: find_msb(a, bits)),
        "bfind.shiftamt": (f"bfind.shiftamt.s{bits} %d, %a;", shift_amount),
    }
    check(signed, {"a": (s, a.view(element_type(s)))}, "u32")
    check({"brev": (f"brev.b{bits} %d, %a;", lambda a: int(f"{a:0{bits}b}"[::-1], 2))}, {"a": (u, a)}, u)


POSITIONS = np.array(
    [0, 1, 4, 7, 8, 15, 16, 31, 32, 33, 40, 63, 64, 65, 128, 255, 256, 0xFFFFFF01], np.uint32
)


@pytest.mark.parametrize("t", WORDS)
def test_extracting_bit_fields(t: str) -> None:
    bits = width(t)

    def extract(a: int, b: int, c: int) -> int:
        position, length = b & 255, c & 255
        bit = [a >> i & 1 for i in range(bits)]
        sign = 0 if t[0] == "u" or length == 0 else bit[min(position + length - 1, bits - 1)]
        return sum(
            (bit[position + i] if i < length and position + i < bits else sign) << i for i in range(bits)
        )

    a, b, c = grid_of(edges(t)[::4], POSITIONS, POSITIONS)
    check({"bfe": (f"bfe.{t} %d, %a, %b, %c;", extract)}, {"a": (t, a), "b": ("u32", b), "c": ("u32", c)}, t)


@pytest.mark.parametrize("bits", (32, 64))
def test_inserting_bit_fields(bits: int) -> None:
    def insert(a: int, b: int, c: int, e: int) -> int:
        position, length = c & 255, e & 255
        for i in range(length):
            if position + i < bits:
                b = b & ~(1 << position + i) | (a >> i & 1) << position + i
        return b

    u = f"u{bits}"
    a, b, c, e = grid_of(edges(u)[::6], edges(u)[::6], POSITIONS, POSITIONS)
    inputs = {"a": (u, a), "b": (u, b), "c": ("u32", c), "e": ("u32", e)}
    check({"bfi": (f"bfi.b{bits} %d, %a, %b, %c, %e;", insert)}, inputs, u)


def test_finding_the_nth_set_bit() -> None:
    def find(mask: int, base: int, offset: int) -> int:
        if offset == 0:
            return base if mask >> base & 1 else -1
        step = 1 if offset > 0 else -1
        positions = range(base, 32 if step > 0 else -1, step)
        found = [p for p in positions if mask >> p & 1]
        return found[abs(offset) - 1] if abs(offset) <= len(found) else -1

    masks = np.array([0, 1, 0x80000000, 0xFFFFFFFF, 0x0F0F0F0F, 0x12345678], np.uint32)
    offsets = np.array([0, 1, 2, 5, 32, 33, -1, -2, -5, -32, -33, -(2**31), 2**31 - 1], np.int32)
    a, b, c = grid_of(masks, np.arange(32, dtype=np.uint32), offsets)
    inputs = {"a": ("u32", a), "b": ("u32", b), "c": ("s32", c)}
    check({"fns": ("fns.b32 %d, %a, %b, %c;", find)}, inputs, "u32")


def parts(word: int, bits: int, signed: bool) -> list[int]:
    return [wrap(word >> i, f"{'s' if signed else 'u'}{bits}") for i in range(0, 32, bits)]


def test_dot_products_of_bytes() -> None:
    forms = {}
    for at in ("u32", "s32"):
        for bt in ("u32", "s32"):

            def dp4a(a: int, b: int, c: int, at: str = at, bt: str = bt) -> int:
                return c + sum(
                    x * y for x, y in zip(parts(a, 8, at == "s32"), parts(b, 8, bt == "s32"), strict=True)
                )

            forms[f"dp4a.{at}.{bt}"] = (f"dp4a.{at}.{bt} %d, %a, %b, %c;", dp4a)
            for mode in ("lo", "hi"):

                def dp2a(a: int, b: int, c: int, at: str = at, bt: str = bt, mode: str = mode) -> int:
                    pair = parts(b, 8, bt == "s32")[0 if mode == "lo" else 2 :][:2]
                    return c + sum(x * y for x, y in zip(parts(a, 16, at == "s32"), pair, strict=True))

                forms[f"dp2a.{mode}.{at}.{bt}"] = (f"dp2a.{mode}.{at}.{bt} %d, %a, %b, %c;", dp2a)
    some = edges("u32")[::2]
    a, b, c = grid_of(some, some, some[::3])
    check(forms, {"a": ("u32", a), "b": ("u32", b), "c": ("u32", c)}, "u32")


def test_extending_and_masking() -> None:
    def szext(a: int, b: int, signed: bool, wraps: bool) -> int:
        if b >= 32 and not wraps:
            return a
        n = b & 31
        return 0 if n == 0 else wrap(a, f"{'s' if signed else 'u'}{n}")

    def bmsk(a: int, b: int, wraps: bool) -> int:
        if wraps:
            a, b = a & 31, b & 31
        return sum(1 << i for i in range(32) if a <= i < a + b)

    forms: dict[str, tuple[str, Callable[..., int]]] = {
        "szext.clamp.u32": ("szext.clamp.u32 %d, %a, %b;", lambda a, b: szext(a, b, False, False)),
        "szext.clamp.s32": ("szext.clamp.s32 %d, %a, %b;", lambda a, b: szext(a, b, True, False)),
        "szext.wrap.u32": ("szext.wrap.u32 %d, %a, %b;", lambda a, b: szext(a, b, False, True)),
        "szext.wrap.s32": ("szext.wrap.s32 %d, %a, %b;", lambda a, b: szext(a, b, True, True)),
        "bmsk.clamp": ("bmsk.clamp.b32 %d, %a, %b;", lambda a, b: bmsk(a, b, False)),
        "bmsk.wrap": ("bmsk.wrap.b32 %d, %a, %b;", lambda a, b: bmsk(a, b, True)),
    }
    a, b = grid_of(np.concatenate([edges("u32"), POSITIONS]), POSITIONS)
    check(forms, {"a": ("u32", a), "b": ("u32", b)}, "u32")


def test_packed_16_bit_integers() -> None:
    forms = {}
    for t in ("u16", "s16"):
        for op, function in (("add", lambda x, y: x + y), ("min", min), ("max", max)):

            def packed(a: int, b: int, t: str = t, function: Callable[[int, int], int] = function) -> int:
                low, high = (wrap(function(wrap(a >> s, t), wrap(b >> s, t)), "u16") for s in (0, 16))
                return high << 16 | low

            forms[f"{op}.{t}x2"] = (f"{op}.{t}x2 %d, %a, %b;", packed)
    forms["min.relu.s16x2"] = (
        "min.relu.s16x2 %d, %a, %b;",
        lambda a, b: sum(max(min(wrap(a >> s, "s16"), wrap(b >> s, "s16")), 0) << s for s in (0, 16)),
    )
    a, b = grid_of(edges("u32"), edges("u32"))
    check(forms, {"a": ("b32", a), "b": ("b32", b)}, "b32")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1)), min_size=1, max_size=40))
def test_carries_make_128_bit_sums_and_differences(pairs: list[tuple[int, int]]) -> None:
    def halves(values: list[int], shift: int) -> np.ndarray:
        return np.array([v >> shift & (2**64 - 1) for v in values], np.uint64)

    a, b = ([pair[i] for pair in pairs] for i in range(2))
    inputs = {
        "al": ("u64", halves(a, 0)), "ah": ("u64", halves(a, 64)),
        "bl": ("u64", halves(b, 0)), "bh": ("u64", halves(b, 64)),
    }  # fmt: skip
    carry_out = " addc.u32 %c, 0, 0;"
    borrow_out = " subc.u32 %c, 0, 0;"
    words = [
        ".reg .b32 %a<4>, %b<4>, %d<4>;",
        "mov.b64 {%a0, %a1}, %al; mov.b64 {%a2, %a3}, %ah; mov.b64 {%b0, %b1}, %bl; mov.b64 {%b2, %b3}, %bh;",
        "add.cc.u32 %d0, %a0, %b0; addc.cc.u32 %d1, %a1, %b1;",
        "addc.cc.s32 %d2, %a2, %b2; addc.cc.u32 %d3, %a3, %b3;",
        carry_out,
        "mov.b64 %dl, {%d0, %d1}; mov.b64 %dh, {%d2, %d3};",
    ]
    forms = {
        "add": "add.cc.u64 %dl, %al, %bl; addc.cc.u64 %dh, %ah, %bh;" + carry_out,
        "sub": "sub.cc.u64 %dl, %al, %bl; subc.cc.s64 %dh, %ah, %bh;" + borrow_out,
        "words": "\n".join(words),
    }
    got = run_forms(forms, inputs, {"dl": "u64", "dh": "u64", "c": "u32"})
    for form, made in got.items():
        for i, (x, y) in enumerate(pairs):
            exact = x - y if form == "sub" else x + y
            found = int(made["dh"][i]) << 64 | int(made["dl"][i])
            assert found == exact % 2**128, form
            assert int(made["c"][i]) == (2**32 - 1 if exact < 0 else exact >> 128), form


def test_the_flag_after_a_subtraction_is_what_the_hardware_has() -> None:
    # ptxas turns all of these into additions with one carry bit: a - b is a + ~b + 1.
    forms = {
        "sub.cc, addc": ("sub.cc.u32 %d, %a, %b; addc.u32 %c, 0, 0;", lambda a, b: (a - b, a >= b)),
        "add.cc, subc": ("add.cc.u32 %d, %a, %b; subc.u32 %c, 1, 0;", lambda a, b: (a + b, a + b >= 2**32)),
        "subc.cc, addc": (
            "sub.cc.u32 %d, 0, 1; subc.cc.u32 %d, %a, %b; addc.u32 %c, 0, 0;",
            lambda a, b: (a - b - 1, a > b),
        ),
        "mad.cc, subc": (
            "mad.lo.cc.u32 %d, %a, 1, %b; subc.u32 %c, 1, 0;",
            lambda a, b: (a + b, a + b >= 2**32),
        ),
        "sub.cc, madc": (
            "sub.cc.u32 %d, %a, %b; madc.lo.u32 %c, 0, 0, 0;",
            lambda a, b: (a - b, a >= b),
        ),
    }
    a, b = grid_of(edges("u32"), edges("u32"))
    got = run_forms(
        {form: lines for form, (lines, _) in forms.items()},
        {"a": ("u32", a), "b": ("u32", b)},
        {"d": "u32", "c": "u32"},
    )
    for form, (_, exact) in forms.items():
        for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
            difference, flag = exact(x, y)
            found = (int(got[form]["d"][i]), int(got[form]["c"][i]))
            assert found == (difference % 2**32, int(flag)), (form, x, y)


def test_carries_of_products_make_a_64_bit_square() -> None:
    # A 64 x 64 bit product from 32-bit words, as in big-integer code.
    a, b = grid_of(edges("u64"), edges("u64"))
    lines = [
        ".reg .u32 %a0, %a1, %b0, %b1, %d<4>;",
        "mov.b64 {%a0, %a1}, %a; mov.b64 {%b0, %b1}, %b;",
        "mul.lo.u32 %d0, %a0, %b0; mul.hi.u32 %d1, %a0, %b0;",
        "mad.lo.cc.u32 %d1, %a0, %b1, %d1; madc.hi.u32 %d2, %a0, %b1, 0;",
        "mad.lo.cc.u32 %d1, %a1, %b0, %d1; madc.hi.cc.u32 %d2, %a1, %b0, %d2; addc.u32 %d3, 0, 0;",
        "mad.lo.cc.u32 %d2, %a1, %b1, %d2; madc.hi.u32 %d3, %a1, %b1, %d3;",
        "mov.b64 %l, {%d0, %d1}; mov.b64 %h, {%d2, %d3};",
    ]
    got = run_instruction(lines, {"a": ("u64", a), "b": ("u64", b)}, {"l": "u64", "h": "u64"})
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        assert int(got["h"][i]) << 64 | int(got["l"][i]) == int(x) * int(y)


def test_the_carry_of_a_lane_is_its_own_and_survives_divergence() -> None:
    lines = [
        ".reg .pred %odd; .reg .u32 %lane, %t;",
        "mov.u32 %lane, %laneid; and.b32 %t, %lane, 1; setp.ne.u32 %odd, %t, 0;",
        "add.cc.u32 %t, %a, %a;",
        "@%odd add.cc.u32 %t, 1, 1;",
        "addc.u32 %d, 0, 0;",
    ]
    a = np.full(64, 0x80000000, np.uint32)
    got = run_instruction(lines, {"a": ("u32", a)}, {"d": "u32"})["d"]
    assert got.tolist() == [1, 0] * 32


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(INTEGERS), st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 3), min_size=1, max_size=70)
)
def test_any_integers(t: str, rows: list[tuple[int, int, int]]) -> None:
    bits = width(t)
    a, b, c = (np.array([wrap(row[i], t) for row in rows], dtype=element_type(t)) for i in range(3))
    forms = {
        "mad.lo": (f"mad.lo.{t} %d, %a, %b, %c;", lambda a, b, c: a * b + c),
        "mad.hi": (f"mad.hi.{t} %d, %a, %b, %c;", lambda a, b, c: (a * b >> bits) + c),
        "div": (f"div.{t} %d, %a, %b;", lambda a, b, c: quotient(a, b)),
        "rem": (f"rem.{t} %d, %c, %b;", lambda a, b, c: remainder(c, b)),
        "immediate": (f"add.{t} %d, %a, -3;", lambda a, b, c: a - 3),
    }
    check(forms, {"a": (t, a), "b": (t, b), "c": (t, c)}, t)


def test_lanes_that_are_not_active_keep_their_value() -> None:
    lines = [
        ".reg .pred %p; .reg .u32 %lane;",
        "mov.u32 %lane, %laneid; mov.u32 %d, 7; mov.u64 %e, 9;",
        "setp.lt.u32 %p, %lane, %a;",
        "@%p add.u32 %d, %lane, 100;",
        "@!%p cvt.u64.u32 %e, %lane;",
        "@!%p div.u32 %d, %d, 2;",
    ]
    a = np.repeat(np.array([0, 1, 5, 31, 32], np.uint32), 32)
    got = run_instruction(lines, {"a": ("u32", a)}, {"d": "u32", "e": "u64"})
    lane = np.arange(a.size) % 32
    assert got["d"].tolist() == np.where(lane < a, lane + 100, 3).tolist()
    assert got["e"].tolist() == np.where(lane < a, 9, lane).tolist()


@pytest.mark.parametrize(
    ("line", "arch"),
    [
        ("add.u16x2 %d, %a, %a;", "sm_80"),
        ("mul.wide.u64 %e, %e, %e;", "sm_80"),
        ("add.sat.u32 %d, %a, %a;", "sm_80"),
        ("add.u32 %d, %a;", "sm_80"),
        ("add.u64 %d, %e, %e;", "sm_80"),
        ("popc.u16 %d, %a;", "sm_80"),
    ],
)
def test_forms_that_do_not_exist_are_refused(line: str, arch: str) -> None:
    with pytest.raises(FaultError, match="not supported: " + line.split()[0].replace(".", r"\.")):
        run_instruction([".reg .u64 %e;", line], {"a": ("u32", np.arange(32))}, {"d": "u32"}, arch=arch)
