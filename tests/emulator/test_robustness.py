"""Thousands of launches, and launches from several threads."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ladder.run.emulator import Module, PtxError

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 values, .param .u32 factor)
{
  .reg .b32 %r<6>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [values];
  ld.param.u32 %r1, [factor];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %d2, %r2, 4;
  add.s64 %d3, %d1, %d2;
  ld.global.u32 %r3, [%d3];
  mul.lo.u32 %r4, %r3, %r1;
  st.global.u32 [%d3], %r4;
  ret;
}
"""


def scale(module: Module, factor: int) -> bool:
    values = np.arange(64, dtype=np.uint32)
    module.launch("scale", 1, 64, [values, factor])
    return bool((values == np.arange(64) * factor).all())


def test_launches_from_several_threads() -> None:
    module = Module(PTX)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda factor: scale(module, factor), range(400)))


def test_thousands_of_launches_leave_nothing_behind() -> None:
    module = Module(PTX)
    for factor in range(500):
        scale(module, factor)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert all(scale(module, factor) for factor in range(5000))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 4096


def test_many_modules_leave_nothing_behind() -> None:
    for _ in range(50):
        scale(Module(PTX), 3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for factor in range(500):
        assert scale(Module(PTX), factor)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8192


def test_a_module_that_is_refused_leaves_no_memory_behind() -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    for _ in range(20):
        with pytest.raises(PtxError, match="another module"):
            Module(head + ".global .b8 known[300];\n.extern .global .u32 unknown;\n")
        # Memory that replaces the first module's variable must not collide with it.
        Module(head + ".global .b8 other[100];\n")


def test_variables_that_no_gpu_could_hold_are_refused() -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    with pytest.raises(PtxError, match=r"up to huge take more than the 42949672960 bytes .* sm_80"):
        Module(head + ".global .b8 small[8];\n.global .b8 huge[42949672960];\n")
    # Large memory costs nothing until it is used.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    Module(head + ".global .b8 large[4294967296];\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8192
