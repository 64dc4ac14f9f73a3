"""What lessons say themselves, in the reader's language.

docs/translations.py makes ``<language>.json`` from the catalogues.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from ladder.exercises import language


def said(text: str) -> str:
    """The text in the reader's language; the text itself where it has no translation."""
    return _translations(language()).get(text, text)


@cache
def _translations(language: str) -> dict[str, str]:
    path = Path(__file__).with_name(f"{language}.json")
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
