"""The table: one row per stage and backend, with the same columns for all backends."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ladder.operations import (
    DEFAULT_OPERATION,
    AnyProblem,
    Operation,
    get_operation,
    operation_of,
)
from ladder.run.emulator import COUNTERS

if TYPE_CHECKING:
    import pandas as pd

    from ladder.operations import Deviation, Reference

Row = dict[str, Any]


def columns(operation: Operation) -> dict[str, str]:
    """All columns in order, with their (nullable) pandas types.

    The columns of the problem and the errors depend on the operation; the others do not.
    """
    first, *others = operation.error_columns.values()
    return {
        "stage": "string",
        "backend": "string",
        "arch": "string",
        **operation.columns,
        first: "Float64",
        "error_bound": "Float64",
        "passed": "boolean",
        **dict.fromkeys(others, "Float64"),
        **dict.fromkeys(COUNTERS, "Int64"),
        "time_ms": "Float64",
        "tflops": "Float64",
    }


#: The columns of the default operation.
COLUMNS = columns(get_operation(DEFAULT_OPERATION))


def make_row(stage: str, backend: str, arch: str, problem: AnyProblem) -> Row:
    """Makes a row with nothing but its problem, which is what a failed stage gets."""
    operation = operation_of(problem)
    row: Row = dict.fromkeys(columns(operation))
    row.update(stage=stage, backend=backend, arch=arch, **operation.row(problem), passed=False)
    return row


def fill_row(
    row: Row,
    problem: AnyProblem,
    reference: Reference,
    errors: Mapping[str, Deviation],
    counters: Mapping[str, int | None],
    time_ms: float | None,
) -> None:
    """Enters the results of a run. A NaN error or a missing output fails it and leaves the cell empty."""
    operation = operation_of(problem)
    for name, column in operation.error_columns.items():
        error = errors[name].largest if name in errors else math.nan
        row[column] = error if math.isfinite(error) else None
    row.update(
        error_bound=reference.bounds[operation.output_names[0]],
        passed=reference.passed(errors),
        time_ms=time_ms,
        tflops=problem.flops / time_ms * 1e-9 if time_ms else None,
    )
    row.update({name: counters.get(name) for name in COUNTERS})


def to_frame(rows: Iterable[Row], operation: Operation | None = None) -> pd.DataFrame:
    """Makes a data frame, perhaps an empty one, of the rows of one operation, by default attention."""
    import pandas as pd

    kinds: dict[str, Any] = columns(operation or get_operation(DEFAULT_OPERATION))
    rows = list(rows)
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in kinds.items()}
    )


def to_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """Writes the rows as a JSON array, one per line; empty cells are null."""
    lines = [json.dumps(dict(row), allow_nan=False) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"
