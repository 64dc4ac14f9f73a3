"""Cells of the pages: numbers as ncu writes them, and the text that they stand in."""

from __future__ import annotations

from pathlib import Path

from ladder.errors import LadderError


def read_text(source: str | Path) -> str:
    if isinstance(source, Path):
        try:
            return source.read_text(encoding="utf-8-sig", errors="replace")
        except OSError as error:
            raise LadderError(f"{source} cannot be read: {error.strerror}") from error
    return source


def number(cell: str) -> float | None:
    """The value of a cell; NaN if it is empty, None if it is text.

    With instances shown a cell is "158 (0: 100; 1: 58)": the aggregate comes first.
    """
    word = cell.strip().partition(" (")[0].replace(",", "")
    if word.lower() in ("", "n/a", "nan", "no data", "-", "(!) n/a"):
        return float("nan")
    try:
        return float(word)
    except ValueError:
        return None
