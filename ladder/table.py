"""The table: one row a stage and backend, the same columns whatever did the counting."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ladder.problem import Problem

if TYPE_CHECKING:
    import pandas as pd

    from ladder.reference import Reference

#: What the emulator or a profiler counts. A cell that a backend cannot know is empty, never 0.
COUNTERS = (
    "shared_load_instructions",
    "shared_store_instructions",
    "ldmatrix_instructions",
    "wavefronts_ld",
    "wavefronts_st",
    "conflicts_ld",
    "conflicts_st",
    "conflicts_atom",
    "conflicts",
    "mma_instructions",
    "global_sectors_ld",
    "global_sectors_st",
)

#: Every column in order, with its pandas type (all of them can be empty).
COLUMNS: dict[str, str] = {
    "stage": "string",
    "backend": "string",
    "arch": "string",
    **dict.fromkeys(("B", "H", "Hkv", "N", "M", "d"), "Int64"),
    "dtype": "string",
    "causal": "boolean",
    "error": "Float64",
    "error_bound": "Float64",
    "passed": "boolean",
    "lse_error": "Float64",
    **dict.fromkeys(COUNTERS, "Int64"),
    "time_ms": "Float64",
    "tflops": "Float64",
}

Row = dict[str, Any]


def make_row(stage: str, backend: str, arch: str, problem: Problem) -> Row:
    """A row that knows its problem and nothing else, which is what a stage that failed gets."""
    row: Row = dict.fromkeys(COLUMNS)
    row.update(
        stage=stage,
        backend=backend,
        arch=arch,
        B=problem.batch,
        H=problem.heads,
        Hkv=problem.num_kv_heads,
        N=problem.q_len,
        M=problem.kv_len,
        d=problem.head_dim,
        dtype=problem.dtype,
        causal=problem.is_causal,
        passed=False,
    )
    return row


def fill_row(
    row: Row,
    problem: Problem,
    reference: Reference,
    error: float,
    lse_error: float,
    counters: Mapping[str, int | None],
    time_ms: float | None,
) -> None:
    """Enters what a run gave; a NaN error fails and leaves its cell empty."""
    row.update(
        error=error if math.isfinite(error) else None,
        error_bound=reference.error_bound,
        passed=error <= reference.error_bound and lse_error <= reference.lse_bound,
        lse_error=lse_error if math.isfinite(lse_error) else None,
        time_ms=time_ms,
        tflops=problem.flops / time_ms * 1e-9 if time_ms else None,
    )
    row.update({name: counters.get(name) for name in COUNTERS})


def to_frame(rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as a data frame with exactly :data:`COLUMNS`."""
    import pandas as pd

    rows = list(rows)
    kinds: dict[str, Any] = dict(COLUMNS)
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=kinds[name]) for name in kinds})


def to_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows as a JSON array, a line each; an empty cell is null."""
    lines = [json.dumps(dict(row), allow_nan=False) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"
