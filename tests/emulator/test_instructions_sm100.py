"""Instructions that sm_100 adds to those of all GPUs: pairs of floats, three operands, mixed widths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx_kernels import run_instruction
from warp_kernel import fault_of

ARCH = "sm_100a"
RNG = np.random.default_rng(5)
COUNT = 512


def floats(count: int = COUNT) -> np.ndarray:
    """All magnitudes, with zeros, subnormals, infinities and NaNs among them."""
    bits = RNG.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    bits[:8] = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x80000001, 0x3F800000]
    return bits.view(np.float32)


def pairs(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return low.view(np.uint32).astype(np.uint64) | high.view(np.uint32).astype(np.uint64) << np.uint64(32)


def run(line: str, inputs: dict[str, tuple[str, Any]], result: str) -> np.ndarray:
    return run_instruction(line, inputs, {"d": result}, arch=ARCH)["d"]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp", "rn.ftz"])
@pytest.mark.parametrize(("opcode", "names"), [("add", "ab"), ("sub", "ab"), ("mul", "ab"), ("fma", "abc")])
def test_pairs_are_two_floats(opcode: str, mode: str, names: str) -> None:
    """Each half is what the instruction for one float gives."""
    low, high = ({name: floats() for name in names} for _ in range(2))
    operands = ", ".join(f"%{name}" for name in names)
    packed = {name: ("b64", pairs(low[name], high[name])) for name in names}
    found = run(f"{opcode}.{mode}.f32x2 %d, {operands};", packed, "b64")
    for half, values in enumerate((low, high)):
        single = {name: ("f32", values[name]) for name in names}
        expected = run(f"{opcode}.{mode}.f32 %d, {operands};", single, "f32")
        assert np.array_equal(
            (found >> np.uint64(32 * half)).astype(np.uint32), np.asarray(expected).view(np.uint32)
        )


@pytest.mark.parametrize("opcode", ["min", "max"])
@pytest.mark.parametrize("modifiers", ["", ".NaN", ".ftz", ".abs", ".NaN.abs"])
def test_three_operands(opcode: str, modifiers: str) -> None:
    a, b, c = floats(), RNG.permutation(floats()), RNG.permutation(floats())
    inputs = {name: ("f32", values) for name, values in (("a", a), ("b", b), ("c", c))}
    found = run(f"{opcode}{modifiers}.f32 %d, %a, %b, %c;", inputs, "f32")
    if ".abs" in modifiers:
        a, b, c = np.abs(a), np.abs(b), np.abs(c)
    if ".ftz" in modifiers:
        a, b, c = (np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x) for x in (a, b, c))
    function = {
        ("min", False): np.fmin,
        ("max", False): np.fmax,
        ("min", True): np.minimum,
        ("max", True): np.maximum,
    }[opcode, ".NaN" in modifiers]
    expected = function(function(a, b), c)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    assert same.all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_operands_of_16_bits(kind: str) -> None:
    """Exact in float64, then rounded once."""
    a, b = (RNG.integers(0, 2**16, COUNT, dtype=np.uint32).astype(np.uint16) for _ in range(2))
    c = RNG.normal(size=COUNT).astype(np.float32)

    def wide(bits: np.ndarray) -> np.ndarray:
        if kind == "f16":
            return bits.view(np.float16).astype(np.float64)
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    fine = np.isfinite(wide(a)) & np.isfinite(wide(b)) & (np.abs(wide(a)) < 1e4) & (np.abs(wide(a)) > 1e-4)
    inputs = {"a": ("b16", a), "b": ("b16", b), "c": ("f32", c)}
    two = {name: inputs[name] for name in "ac"}
    for line, exact in (
        (f"add.rn.f32.{kind} %d, %a, %c;", wide(a) + c),
        (f"sub.rn.f32.{kind} %d, %a, %c;", wide(a) - c),
    ):
        found = run(line, two, "f32")
        assert np.array_equal(found[fine], exact.astype(np.float32)[fine])
    found = run(f"fma.rn.f32.{kind} %d, %a, %a, %c;", two, "f32")
    exact = wide(a).astype(np.longdouble) ** 2 + c
    assert np.array_equal(found[fine], exact.astype(np.float32)[fine])


@pytest.mark.parametrize(
    "line",
    ["add.rn.f32x2 %d, %a, %a;", "max.f32 %e, %f, %f, %f;", "add.rn.f32.f16 %e, %h, %f;"],
)
def test_they_need_sm_100(line: str) -> None:
    inputs = {
        "a": ("b64", np.zeros(1, np.uint64)),
        "f": ("f32", np.zeros(1, np.float32)),
        "h": ("b16", np.zeros(1, np.uint16)),
    }
    fault = fault_of(run_instruction, line, inputs, {"d": "b64", "e": "f32"}, arch="sm_90")
    assert "needs sm_100 or newer" in fault.message


@pytest.mark.parametrize("opcode", ["min", "max"])
@pytest.mark.parametrize("modifiers", ["", ".abs", ".NaN"])
def test_redux(opcode: str, modifiers: str) -> None:
    values = RNG.normal(size=128).astype(np.float32)  # four warps
    values[[3, 40]] = np.nan
    values[64:96] = np.nan
    values[96:128] = np.where(np.arange(32) % 2, np.float32(0), np.float32(-0.0))
    line = f"redux.sync.{opcode}{modifiers}.f32 %d, %a, 0xffffffff;"
    found = run(line, {"a": ("f32", values)}, "f32").view(np.uint32)
    for warp in range(4):
        own = np.abs(values[32 * warp :][:32]) if ".abs" in modifiers else values[32 * warp :][:32]
        numbers = own[~np.isnan(own)]
        if not numbers.size or (".NaN" in modifiers and numbers.size < 32):
            expected = 0x7FFFFFFF
        else:
            ordered = sorted(numbers, key=lambda x: (float(x), not np.signbit(x)))
            expected = int(ordered[0 if opcode == "min" else -1].view(np.uint32))
        assert set(found[32 * warp :][:32].tolist()) == {expected}
