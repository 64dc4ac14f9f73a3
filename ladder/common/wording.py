"""What the program says to students, in the reader's language.

The sources hold the English messages, as ``said("{n} of {count} solved", n=3, count=8)``. The catalogues,
docs/locale/*.po, hold the translations, and docs/translations.py makes ladder/locale/``<language>.json`` from
them, so that an installed package needs no tool for catalogues.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "locale"


def language(environment: Mapping[str, str] | None = None) -> str:
    """The reader's language, such as ``zh-CN``, from ``LADDER_LANGUAGE`` or the locale; "" for English."""
    values = os.environ if environment is None else environment
    names = ("LADDER_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
    chosen = next((values[name] for name in names if values.get(name)), "")
    return "zh-CN" if chosen.partition(".")[0].replace("_", "-").startswith("zh") else ""


def said(message: str, **fields: object) -> str:
    """The message in the reader's language, with these fields; in English if it has no translation."""
    text = _translations(language()).get(message, message)
    return text.format(**fields) if fields else text


@cache
def _translations(language: str) -> dict[str, str]:
    path = _FOLDER / f"{language}.json"
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
