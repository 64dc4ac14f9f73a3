"""Cells of ncu's pages: numbers as ncu writes them, and the text around them."""

from __future__ import annotations

import codecs
from pathlib import Path

from ladder.errors import LadderError


def read_text(source: str | Path) -> str:
    """A page that was printed, or the file that holds it, in UTF-8 or UTF-16 with its mark.

    Raises :class:`LadderError` if the file cannot be read, is empty or is no text.
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
