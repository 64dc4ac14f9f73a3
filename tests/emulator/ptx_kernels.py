"""Kernels around single PTX instructions: each thread applies some lines of PTX to its elements of arrays.

    run_instruction("add.s32 %d, %a, %b;", {"a": ("s32", a), "b": ("s32", b)}, {"d": "s32"})["d"]

Inputs and outputs are registers of the same name, prefixed with ``%``. Besides the PTX types there is
``pred``: an array of zeros and ones. Half-precision types are registers of bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ladder.run.emulator import Module

#: Types of the array's elements and of the register, and the suffix of load and store.
_TYPES: dict[str, tuple[Any, str, str]] = {
    "u8": (np.uint8, "b16", "u8"),
    "s8": (np.int8, "b16", "s8"),
    "u16": (np.uint16, "u16", "u16"),
    "s16": (np.int16, "s16", "s16"),
    "b16": (np.uint16, "b16", "b16"),
    "f16": (np.float16, "b16", "b16"),
    "bf16": (np.uint16, "b16", "b16"),
    "u32": (np.uint32, "u32", "u32"),
    "s32": (np.int32, "s32", "s32"),
    "b32": (np.uint32, "b32", "b32"),
    "f32": (np.float32, "f32", "f32"),
    "f16x2": (np.uint32, "b32", "b32"),
    "bf16x2": (np.uint32, "b32", "b32"),
    "u64": (np.uint64, "u64", "u64"),
    "s64": (np.int64, "s64", "s64"),
    "b64": (np.uint64, "b64", "b64"),
    "f64": (np.float64, "f64", "f64"),
    "pred": (np.uint32, "pred", "u32"),
}

Inputs = Mapping[str, tuple[str, Any]]
Outputs = Mapping[str, str]

_BLOCK = 128
_HEADER = ".version 8.8\n.target {arch}\n.address_size 64\n"


def element_type(ptx_type: str) -> Any:
    """The NumPy type for this PTX type; bit patterns for types that NumPy lacks."""
    return _TYPES[ptx_type][0]


def kernel_text(name: str, lines: str | Sequence[str], inputs: Mapping[str, str], outputs: Outputs) -> str:
    """An entry that runs ``lines`` in each of its ``n`` threads; inputs and outputs map names to types."""
    body = lines if isinstance(lines, str) else "\n  ".join(lines)
    parameters = [
        f".param .u64 {name}_{kind}_{r}" for kind, rs in (("i", inputs), ("o", outputs)) for r in rs
    ]
    text = [
        f".visible .entry {name}({', '.join([*parameters, f'.param .u32 {name}_n'])})",
        "{",
        "  .reg .pred %out_of_range; .reg .u32 %index, %blocks, %threads, %n, %flag; .reg .u64 %base, %at;",
        *(f"  .reg .{_TYPES[t][1]} %{r};" for r, t in {**inputs, **outputs}.items()),
        "  mov.u32 %index, %tid.x; mov.u32 %blocks, %ctaid.x; mov.u32 %threads, %ntid.x;",
        "  mad.lo.u32 %index, %blocks, %threads, %index;",
        f"  ld.param.u32 %n, [{name}_n];",
        "  setp.ge.u32 %out_of_range, %index, %n;",
        "  @%out_of_range ret;",
    ]
    for register, ptx_type in inputs.items():
        element, _, access = _TYPES[ptx_type]
        text += [
            f"  ld.param.u64 %base, [{name}_i_{register}];",
            f"  mad.wide.u32 %at, %index, {np.dtype(element).itemsize}, %base;",
        ]
        if ptx_type == "pred":
            text += ["  ld.global.u32 %flag, [%at];", f"  setp.ne.u32 %{register}, %flag, 0;"]
        else:
            text += [f"  ld.global.{access} %{register}, [%at];"]
    text += ["  " + body]
    for register, ptx_type in outputs.items():
        element, _, access = _TYPES[ptx_type]
        text += [
            f"  ld.param.u64 %base, [{name}_o_{register}];",
            f"  mad.wide.u32 %at, %index, {np.dtype(element).itemsize}, %base;",
        ]
        if ptx_type == "pred":
            text += [f"  selp.u32 %flag, 1, 0, %{register};", "  st.global.u32 [%at], %flag;"]
        else:
            text += [f"  st.global.{access} [%at], %{register};"]
    return "\n".join([*text, "  ret;", "}", ""])


def _prepare(inputs: Inputs) -> tuple[dict[str, np.ndarray], int]:
    arrays = {}
    for register, (ptx_type, values) in inputs.items():
        element = np.dtype(element_type(ptx_type))
        array = np.ascontiguousarray(values)
        if array.dtype != element and array.dtype.itemsize == element.itemsize:
            array = array.view(element)
        arrays[register] = np.ascontiguousarray(array, dtype=element)
    sizes = {array.size for array in arrays.values()}
    if len(sizes) > 1:
        raise ValueError(f"inputs of different sizes: {sizes}")
    return arrays, sizes.pop() if sizes else 32


def run_forms(
    forms: Mapping[str, str | Sequence[str]],
    inputs: Inputs,
    outputs: Outputs,
    *,
    arch: str = "sm_90",
    declare: str = "",
    threads: int = _BLOCK,
) -> dict[str, dict[str, np.ndarray]]:
    """Runs each form (name to lines) on the same inputs, in one module; returns results by form and register.

    ``declare`` goes to module scope; ``threads`` is the block size.
    """
    arrays, count = _prepare(inputs)
    types = {register: ptx_type for register, (ptx_type, _) in inputs.items()}
    kernels = [kernel_text(f"form_{i}", lines, types, outputs) for i, lines in enumerate(forms.values())]
    module = Module("\n".join([_HEADER.format(arch=arch), declare, *kernels]), arch=arch)
    results = {}
    for i, form in enumerate(forms):
        made = {r: np.zeros(count, element_type(t)) for r, t in outputs.items()}
        blocks = max(1, -(-count // threads))
        module.launch(f"form_{i}", blocks, threads, [*arrays.values(), *made.values(), count])
        results[form] = made
    return results


def run_instruction(
    lines: str | Sequence[str],
    inputs: Inputs,
    outputs: Outputs,
    *,
    arch: str = "sm_90",
    declare: str = "",
    threads: int = _BLOCK,
) -> dict[str, np.ndarray]:
    """Runs ``lines`` on arrays: ``inputs`` is register to (type, values), ``outputs`` register to type.

    Thread i has element i of each array. Without inputs there are 32 threads. Raises
    :class:`ladder.run.emulator.FaultError` if the emulator refuses it.
    """
    return run_forms({"only": lines}, inputs, outputs, arch=arch, declare=declare, threads=threads)["only"]


def grid_of(*values: Any) -> list[np.ndarray]:
    """All combinations of the values of several arrays, as flat arrays of the same types."""
    mesh = np.meshgrid(*values, indexing="ij")
    return [
        np.ascontiguousarray(axis.reshape(-1), dtype=np.asarray(v).dtype)
        for axis, v in zip(mesh, values, strict=True)
    ]
