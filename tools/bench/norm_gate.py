"""``ladder.norm_gate`` beside torch on a GPU: a layer norm times a gate, as HSTU has it behind its attention.

``torch`` is ``F.layer_norm(x, ...) * gate`` in 16 bits, ``torch fp32`` the same in fp32, rounded at its end,
and ``torch compiled`` the latter after ``torch.compile``. GB/s counts each tensor's bytes once per pass: x,
gate and y forward; d_y, x, gate and their gradients backward. Tensors of a few MB stay in the L2 cache.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from torch import Tensor

import ladder
from ladder.common import files
from ladder.common.progress import steps
from ladder.errors import LadderError
from ladder.operations import NORM_GATE_EPSILON
from tools.bench.calls import Call, measure
from tools.bench.provenance import measured_on

_ROWS = 65536
_COLS = (128, 256, 512, 1024, 2048)
_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
#: The matrices that a pass loads and stores.
_FORWARD, _BACKWARD = 3, 5

Function = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def in_16_bits(x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    cols = (x.shape[1],)
    return F.layer_norm(x, cols, weight.to(x.dtype), bias.to(x.dtype), NORM_GATE_EPSILON) * gate


def in_fp32(x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    normed = F.layer_norm(x.float(), (x.shape[1],), weight, bias, NORM_GATE_EPSILON)
    return (normed * gate.float()).to(x.dtype)


def calls_of(
    rows: int, cols: int, dtype: torch.dtype, *, with_gradient: bool, device: str = "cuda"
) -> dict[str, Call]:
    """The calls by contender; torch.compile compiles when it is first called. Raises :class:`LadderError` if
    the ladder's result is not that of fp32.
    """
    x, gate, d_y = (torch.randn(rows, cols, device=device, dtype=dtype) for _ in range(3))
    leaves = [x, gate, *(torch.randn(cols, device=device) for _ in range(2))]
    for leaf in leaves:
        leaf.requires_grad_(with_gradient)
    torch.compiler.reset()  # after eight kinds of arguments torch runs a function eagerly
    functions: dict[str, Function] = {
        "ladder": ladder.norm_gate,
        "torch": in_16_bits,
        "torch fp32": in_fp32,
        "torch compiled": torch.compile(in_fp32, dynamic=False),
    }

    def call_of(function: Function) -> Callable[[], Any]:
        if not with_gradient:
            return lambda: function(*leaves)
        return lambda: torch.autograd.grad(function(*leaves), leaves, d_y)

    calls = {name: call_of(function) for name, function in functions.items()}
    _require_equal(calls["ladder"](), calls["torch fp32"]())
    return calls


def _require_equal(ours: Any, theirs: Any) -> None:
    """Raises :class:`LadderError` if tensors differ by more than roundings to 16 bits and sums in fp32."""
    pairs = [(ours, theirs)] if isinstance(ours, Tensor) else [*zip(ours, theirs, strict=True)]
    for one, other in pairs:
        error = float((one.double() - other.double()).abs().max())
        if not error <= 2.0**-7 * float(other.abs().max()):
            raise LadderError(f"ladder.norm_gate differs from torch by {error:.3g}")


def rows_of(dtype: str, cols: int, *, with_gradient: bool) -> list[dict[str, Any]]:
    """A row for each contender."""
    calls = calls_of(_ROWS, cols, _DTYPES[dtype], with_gradient=with_gradient)
    moved = (_FORWARD + _BACKWARD * with_gradient) * _ROWS * cols * 2
    return [
        {
            "rows": _ROWS,
            "cols": cols,
            "dtype": dtype,
            "pass": "forward and backward" if with_gradient else "forward",
            "contender": name,
            "host_us": host,
            "call_us": whole,
            "gb_per_s": moved / whole * 1e-3,
        }
        for name, (host, _, _, whole) in measure(calls).items()
    ]


def render(frame: pd.DataFrame) -> Group:
    """A table per pass: microseconds per call and GB/s, by columns and contender."""
    title = f"{frame.gpu[0]}, {frame.compiler[0]}, torch {frame.torch[0]}, {frame.date[0]}"
    return Group(title, *(_table(f"{which}", same) for which, same in frame.groupby("pass", sort=False)))


def _table(title: str, frame: pd.DataFrame) -> Table:
    what = f"{title}, {frame['dtype'].iloc[0]}: us per call (GB/s)"
    table = Table(title=what, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("columns")
    contenders = frame.contender.unique()
    for name in contenders:
        table.add_column(name, justify="right", no_wrap=True)
    for cols, same in frame.groupby("cols", sort=False):
        found = same.set_index("contender")
        cells = [f"{found.call_us[name]:.0f} ({found.gb_per_s[name]:,.0f})" for name in contenders]
        table.add_row(f"{cols:,}", *cells)
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", choices=_DTYPES, default="bf16", help="of x and gate; default bf16")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the rows as CSV")


def main(options: argparse.Namespace) -> int:
    """Measures, prints the tables and writes the CSV."""
    if not torch.cuda.is_available():
        raise LadderError("torch sees no CUDA GPU, on which this measures", "ladder doctor says more.")
    if options.out is not None:
        files.require_target(options.out)
    origin, found = measured_on(), []
    with steps("Measuring", len(_COLS)) as progress:
        for cols in _COLS:
            with progress.step(f"{_ROWS} x {cols}"):
                for with_gradient in (False, True):
                    new = rows_of(options.dtype, cols, with_gradient=with_gradient)
                    found += [{**origin, **row} for row in new]
            frame = pd.DataFrame(found)
            if options.out is not None:  # now, so that a run that is cut off leaves what it measured
                files.write(options.out, frame.to_csv(index=False, float_format="%.5g").encode())
    Console().print(render(frame))
    return 0
