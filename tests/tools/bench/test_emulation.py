"""The benchmark of the interpreter counts the work that its rates are made of."""

from __future__ import annotations

import pytest

from tools.bench import emulation


@pytest.fixture(scope="module")
def speeds() -> dict[str, emulation.Speed]:
    return {speed.kernel: speed for speed in emulation.measure(runs=1)}


def test_the_same_product_by_warps_and_by_a_warpgroup(speeds: dict[str, emulation.Speed]) -> None:
    blocks, rounds = 8, 200
    assert speeds["tensor"].operations == speeds["wgmma"].operations == blocks * rounds * 2 * 64**3
    assert speeds["scalar"].operations == speeds["fp64"].operations == 0
    assert speeds["wgmma"].warp_instructions < speeds["tensor"].warp_instructions


def test_each_kernel_has_a_rate(speeds: dict[str, emulation.Speed]) -> None:
    assert list(speeds) == ["scalar", "tensor", "wgmma", "wmma", "fp64"]
    for speed in speeds.values():
        assert speed.per_second_and_core > 0 and speed.slowdown_when_checked > 0
