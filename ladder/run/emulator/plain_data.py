"""Checks of data from another process, whose types nothing guarantees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def of_type(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind}")
    return value


def whole_numbers(values: Any, count: int) -> tuple[Any, ...]:
    if len(values) != count:
        raise ValueError(f"{values!r} are not {count} numbers")
    return tuple(of_type(int, value) for value in values)


def require_table(columns: Mapping[str, list[Any]]) -> None:
    """Raises ValueError or TypeError unless the columns are equally long and hold numbers and texts."""
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("columns of different lengths")
    for name, column in columns.items():
        # By type, since there are a hundred thousand cells.
        if not {*map(type, column)} <= {int, bool, str, type(None)}:
            raise TypeError(f"{name} holds something else than numbers and texts")
