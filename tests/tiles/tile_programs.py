"""Instantiates kernels around the tile library, compiles many at a time, and runs them on the emulator."""

from __future__ import annotations

import functools
import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ladder import stages
from ladder.common import cache
from ladder.compile import toolchain
from ladder.operations import TORCH_DTYPES
from ladder.run.emulator import Launch, Module

HERE = Path(__file__).resolve().parent
CPP_TYPES = {"f32": "float", "f16": "__half", "bf16": "__nv_bfloat16"}
LAYOUTS = ("row", "col")
ROWS = (16, 32, 48, 64)
COLS = tuple(range(16, 129, 16))

#: The parameters of each family's functions; T is the element type.
PARAMETERS = {
    "unary": ("const T *", "T *"),
    "binary": ("const T *", "T *"),
    "by_vector": ("const T *", "T *"),
    "reductions": ("const T *", "T *"),
    "conversions": ("const T *", "T *", "float *", "__half *", "__nv_bfloat16 *"),
    "masks": ("const T *", "T *", "int ", "int "),
    "vectors": ("const T *", "const T *", "T *", "float *", "int "),
    "memory": ("const T *", "T *", "int "),
}


@dataclass(frozen=True)
class Case:
    """One kernel of a family for tiles of ``rows`` x ``cols``."""

    family: str
    dtype: str
    layout: str
    rows: int
    cols: int
    arch: str = "sm_80"
    optimised: bool = True

    def __str__(self) -> str:
        size = f"{self.rows}x{self.cols}"
        return f"{self.family}-{self.dtype}-{self.layout}-{size}-{self.arch}-O{3 if self.optimised else 1}"

    @property
    def torch_dtype(self) -> torch.dtype:
        return TORCH_DTYPES[self.dtype]

    @property
    def kernel(self) -> Kernel:
        element = CPP_TYPES[self.dtype]
        parameters = tuple(p.replace("T ", element + " ") for p in PARAMETERS[self.family])
        return Kernel(
            f"{self.family}<{element}, Layout::{self.layout}, {self.rows}, {self.cols}>", parameters
        )

    @property
    def together(self) -> str:
        """The translation unit that contains the case."""
        return f"{self.family}-{self.arch}-{self.optimised}"

    def launch(self, unit: Unit, arguments: Sequence[Any], smem_bytes: int = 0) -> Launch:
        """Runs it with one warp."""
        module = compiled(unit, self.arch, self.optimised)
        return module.launch(self.kernel.name, 1, 32, arguments, smem_bytes)


@dataclass(frozen=True)
class Kernel:
    """An instance of one of the functions of ``kernels.h``, and the types that it takes."""

    function: str
    parameters: tuple[str, ...]

    @property
    def name(self) -> str:
        return "k_" + re.sub(r"\W+", "_", self.function).strip("_")

    @property
    def source(self) -> str:
        names = [f"x{i}" for i in range(len(self.parameters))]
        declared = ", ".join(f"{t}{n}" for t, n in zip(self.parameters, names, strict=True))
        return (
            f'extern "C" __global__ void {self.name}({declared}) {{ {self.function}({", ".join(names)}); }}'
        )


Unit = tuple[Kernel, ...]


def tile_places(rows: int, cols: int, layout: str) -> tuple[Tensor, Tensor]:
    """Row and column of what a register tile's lanes hold: [line/16, span/16, quarter, lane, of the pair].

    As in types.h, lane l holds line l / 4 of quarters 0 and 2 of a 16x16 tile, and line l / 4 + 8 of 1 and 3;
    in 0 and 1 these are places 2 (l % 4) and + 1 of the span, in 2 and 3 those + 8. Lines are rows in a
    row-layout tile and columns in a col-layout one.
    """
    lines, span = (rows, cols) if layout == "row" else (cols, rows)
    quarter, lane = torch.arange(4)[:, None, None], torch.arange(32)[:, None]
    shape = (lines // 16, span // 16, 4, 32, 2)
    line = 16 * torch.arange(lines // 16).view(-1, 1, 1, 1, 1) + lane // 4 + quarter % 2 * 8
    place = 16 * torch.arange(span // 16).view(-1, 1, 1, 1) + lane % 4 * 2 + quarter // 2 * 8
    place = place + torch.arange(2)
    line, place = line.expand(shape), place.expand(shape)
    return (line, place) if layout == "row" else (place, line)


def vector_places(length: int, along: str) -> Tensor:
    """The entries that a register vector's lanes hold: [entry / 16, value, lane].

    Along a tile's lines, lane l holds l / 4 and l / 4 + 8 of every 16; along its span, 2 (l % 4), +1, +8, +9.
    """
    lane = torch.arange(32)
    if along == "lines":
        entry = lane // 4 + 8 * torch.arange(2)[:, None]
    else:
        entry = lane % 4 * 2 + torch.tensor([0, 1, 8, 9])[:, None]
    return 16 * torch.arange(length // 16)[:, None, None] + entry


def pairwise_cases(family: str, dtypes: Sequence[str] = tuple(CPP_TYPES), arch: str = "sm_80") -> list[Case]:
    """Every size once, such that any two of dtype, layout, rows and cols meet; small ones also optimised.

    Unrolling large tiles takes the compiler twenty times as long as everything else; the emulator does not
    need it.
    """
    cases = []
    for r, rows in enumerate(ROWS):
        for c, cols in enumerate(COLS):
            dtype = dtypes[(r + c) % len(dtypes)]
            layout = LAYOUTS[(r + c + (c // 2 if len(dtypes) == 2 else 0)) % 2]
            case = Case(family, dtype, layout, rows, cols, arch, optimised=False)
            cases += [case, replace(case, optimised=True)] if rows * cols <= 1024 else [case]
    return cases


def full_cases(family: str, dtypes: Sequence[str] = tuple(CPP_TYPES), arch: str = "sm_80") -> list[Case]:
    """Every size with every dtype and layout, compiled like a stage."""
    grid = itertools.product(ROWS, COLS, dtypes, LAYOUTS)
    return [Case(family, dtype, layout, rows, cols, arch) for rows, cols, dtype, layout in grid]


def units(cases: Iterable[Case]) -> dict[str, Unit]:
    """The kernels of the cases by translation unit."""
    found: dict[str, list[Kernel]] = {}
    for case in cases:
        found.setdefault(case.together, []).append(case.kernel)
    return {name: tuple(kernels) for name, kernels in found.items()}


def unit_of_size(case: Case, cases: Iterable[Case]) -> Unit:
    """The kernels of the same family, size and architecture."""
    same = (case.family, case.rows, case.cols, case.arch)
    return tuple(c.kernel for c in cases if (c.family, c.rows, c.cols, c.arch) == same)


@functools.lru_cache(maxsize=8)
def compiled(unit: Unit, arch: str = "sm_80", optimised: bool = True) -> Module:
    """The compiled module of one translation unit, from the cache if possible."""
    lines = ['#include "kernels.h"', "using namespace tests;", *(kernel.source for kernel in unit)]
    flags = [] if optimised else ["-Xcicc", "-O1"]
    return Module(compile_ptx("\n".join(lines) + "\n", arch, *flags), arch)


def compile_ptx(source: str, arch: str, *flags: str) -> str:
    """Compiles a source that may include the library and ``kernels.h`` to PTX, which is cached."""
    nvcc = toolchain.pinned_nvcc()
    command = [str(nvcc.path), *compile_flags(arch), *flags]
    headers = [*sorted(stages.include_directory().glob("*/*.h")), HERE / "kernels.h"]
    key = cache.digest([*command, nvcc.version, source, *(path.read_bytes() for path in headers)])
    result = cache.root() / "tests" / f"tiles-{key}.ptx"
    with cache.lock(result):
        if not result.exists():
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory) / "kernels.cu"
                path.write_text(source)
                done = subprocess.run(
                    [*command, "-ptx", str(path), "-o", f"{directory}/kernels.ptx"],
                    capture_output=True,
                    text=True,
                )
                if done.returncode != 0:
                    raise AssertionError(done.stderr[:4000])
                cache.write_text(result, (Path(directory) / "kernels.ptx").read_text())
    return result.read_text()


def compile_flags(arch: str) -> list[str]:
    """The flags of a stage's build, except for line information."""
    includes = [f"-I{path}" for path in (HERE, stages.include_directory())]
    compute = arch.replace("sm_", "compute_")
    return ["-std=c++20", "-O3", f"-arch={compute}", "-ccbin", toolchain.gxx(), *includes]
