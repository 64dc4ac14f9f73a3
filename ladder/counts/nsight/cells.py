"""Reads ncu's pages and the numbers in their cells."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path

from ladder.errors import LadderError


def read_text(source: str | Path) -> str:
    """Returns a printed page, or that in a file, which may be UTF-8 or UTF-16 with a byte-order mark.

    Raises :class:`LadderError` if the file is unreadable, empty or not text.
    """
    if isinstance(source, str):
        return source
    try:
        data = source.read_bytes()
    except OSError as error:
        raise LadderError(f"{source} cannot be read: {error.strerror}") from error
    if not data:
        raise LadderError(f"{source} is empty")
    utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = data.decode("utf-16" if utf_16 else "utf-8-sig", errors="replace")
    if "\0" in text:
        raise LadderError(f"{source} is no text", "A page is printed by ncu --csv --page raw.")
    return text


def number(cell: str) -> float | None:
    """The value of a cell: NaN if it is empty, None if it is text.

    With instances shown, a cell reads "158 (0: 100; 1: 58)": the aggregate comes first.
    """
    word = cell.strip().partition(" (")[0].replace(",", "")
    if word.lower() in ("", "n/a", "nan", "no data", "-", "(!) n/a"):
        return float("nan")
    try:
        return float(word)
    except ValueError:
        return None


def require_whole(line: str, cells: Sequence[str], header: Sequence[str]) -> None:
    """Raises :class:`LadderError` if a row of a page, in which every cell is quoted, was cut off."""
    if len(cells) < len(header):
        raise LadderError(
            f"this page was cut off: its last row has {len(cells):,} of {len(header):,} cells",
            "Export it again.",
        )
    if not line.endswith('"'):
        raise LadderError("this page was cut off in its last row", "Export it again.")
