"""The frame of all HTML pages: a single self-contained file."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ladder.show.plots import BLUE, INK, ORANGE

_STYLE = Path(__file__).with_name("page.css")


def document(title: str, body: str) -> str:
    """Returns the whole file, including its style sheet. ``title`` is plain text, ``body`` is HTML."""
    colours = f":root {{ --ink: {INK}; --blue: {BLUE}; --orange: {ORANGE}; }}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{colours}\n{_STYLE.read_text(encoding='utf-8')}</style>\n"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
