"""Wraps the few instructions under test in a PTX kernel and launches it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ladder.run.emulator import Fault, FaultError, Launch, Module

LANES = np.arange(32)


def kernel_text(
    body: str,
    pointers: int = 1,
    *,
    before: str = "",
    shared_bytes: int = 0,
    local_bytes: int = 0,
    target: str = "sm_80",
    version: str = "8.0",
) -> str:
    """A module with one kernel ``k`` of ``pointers`` 64-bit parameters.

    ``body`` finds parameter i in %rd<i> and the thread's number in %r0, has the arrays `smem` and `stack` if
    their sizes are given, and may use the %p, %rs, %r, %rd, %f and %fd registers from 10 on. ``before`` goes
    to module scope.
    """
    parameters = ", ".join(f".param .u64 p{i}" for i in range(pointers))
    loads = "\n".join(f"  ld.param.u64 %rd{i}, [p{i}];" for i in range(pointers))
    shared = f"  .shared .align 128 .b8 smem[{shared_bytes}];" if shared_bytes else ""
    local = f"  .local .align 16 .b8 stack[{local_bytes}];" if local_bytes else ""
    return f"""
.version {version}
.target {target}
.address_size 64
{before}
.visible .entry k({parameters})
{{
  .reg .pred %p<40>;
  .reg .b16 %rs<100>;
  .reg .b32 %r<200>;
  .reg .b64 %rd<100>;
  .reg .f32 %f<200>;
  .reg .f64 %fd<100>;
{shared}
{local}
{loads}
  mov.u32 %r0, %tid.x;
{body}
  ret;
}}
"""


def run(
    body: str,
    *arguments: Any,
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] = 32,
    arch: str = "sm_80",
    smem_bytes: int = 0,
    threads: int | None = 1,
    **text: Any,
) -> Launch:
    """Launches `kernel_text(body, ...)` on arrays."""
    module = Module(kernel_text(body, len(arguments), target=arch, **text), arch=arch)
    return module.launch("k", grid, block, arguments, smem_bytes=smem_bytes, threads=threads)


def fault_of(function: Callable[..., object], *arguments: Any, **settings: Any) -> Fault:
    """The fault that the call ends with."""
    with pytest.raises(FaultError) as caught:
        function(*arguments, **settings)
    return caught.value.fault


def lane_address(base: str, to: str, size: int, scratch: str = "%rd99") -> str:
    """PTX that puts base + size * thread number into a 64-bit register."""
    return f"  mul.wide.u32 {scratch}, %r0, {size};\n  add.u64 {to}, {base}, {scratch};\n"


#: PTX that puts the address of this thread's 4 bytes of the first array into %rd10.
OUT = lane_address("%rd0", "%rd10", 4)


def lanes(body: str, *arguments: np.ndarray, block: int = 32, **text: Any) -> np.ndarray:
    """Runs the body and returns each thread's %r10."""
    result = np.zeros(block, np.int32)
    run(OUT + body + "\n  st.global.u32 [%rd10], %r10;", result, *arguments, block=block, **text)
    return result
