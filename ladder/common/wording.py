"""What the program says to students, in the reader's language.

The sources hold the English messages, as ``said("{n} of {count} solved", n=3, count=8)``. The catalogues,
ladder/locale/``<language>.po``, hold the translations of these, of the exercises and of the pages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ladder.common import cache as kept
from ladder.errors import CacheError

#: The catalogues.
LOCALE = Path(__file__).parent.parent / "locale"
_WORDS = "words.json"


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


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each in one line: the messages that the catalogues have of it."""
    return [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]


def said_by_paragraphs(text: str) -> str:
    """A text of several paragraphs in the reader's language."""
    return "\n\n".join(map(said, paragraphs(text))) if language() else text


@cache
def _translations(language: str) -> dict[str, str]:
    """Parsing a catalogue takes a second, so the result is kept."""
    catalogue = LOCALE / f"{language}.po"
    if not catalogue.is_file():
        return {}
    final = kept.root() / "words" / kept.digest([catalogue.read_bytes()])
    try:
        folder = kept.made_once(final, lambda into: _write_words(catalogue, into))
        words: dict[str, str] = json.loads((folder / _WORDS).read_text(encoding="utf-8"))
    except CacheError:
        words = _read_words(catalogue)
    return words


def _write_words(catalogue: Path, folder: Path) -> None:
    (folder / _WORDS).write_text(json.dumps(_read_words(catalogue)), encoding="utf-8")


def _read_words(catalogue: Path) -> dict[str, str]:
    import polib  # here, since most readers need none

    return {entry.msgid: entry.msgstr for entry in polib.pofile(str(catalogue)) if entry.msgstr}
