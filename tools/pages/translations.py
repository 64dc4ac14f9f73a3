"""The texts in other languages: one source, English, and a catalogue of its sentences for each language.

    python -m tools.pages.translations [--check]

brings the catalogues (ladder/locale/*.po, gettext) up to date with the sources, and writes README.zh-CN.md.
The other translated pages are made with the site. A paragraph, a heading, a table's cell is one message. One
that has changed is a new one, which stands in English until somebody translates it; what is no longer said
anywhere is dropped. With ``--check`` nothing is written, and the exit code is 1 if something would be. Either
way the counts are printed, and what is not translated.
"""

from __future__ import annotations

import argparse
import ast
import html
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import polib
from markdown_it import MarkdownIt

from ladder import project
from ladder.common import wording
from ladder.common.wording import paragraphs
from ladder.course.exercises import (
    BLOCK_BARRIERS,
    GLOBAL_ATOMICS,
    KINDS,
    PRINTED,
    counter_in_english,
    exercises,
)
from ladder.course.lessons.debugging import TRANSCRIPT, translated_transcript
from ladder.course.lessons.magics import as_markdown
from ladder.course.lessons.predictions import WORDS
from ladder.course.lessons.questions import QUESTIONS
from ladder.operations import KEYS, QUERIES
from ladder.run.emulator import ADVICE, COUNTERS, FORMS, MORE_ADVICE, SENTENCES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
#: The page whose translation is committed. The others are translated on the site only.
README = "README.md"
PAGES = (
    README,
    "notebooks/README.md",
    *(f"docs/{name}.md" for name in ("commands", "glossary", "python", "speed")),
)
LESSONS = tuple(f"notebooks/{path.name}" for path in sorted((ROOT / "notebooks").glob("*.ipynb")))
RUNGS = tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "stages").rglob("README.md")))
#: Drawings, whose labels are text.
PICTURES = tuple(
    f"docs/pictures/{path.name}"
    for path in sorted((ROOT / "docs" / "pictures").glob("[!.]*.svg"))
    if "." not in path.stem
)
#: Exercises, whose words ``ladder exercise`` and the lessons show.
EXERCISES = tuple(
    f"exercises/{path.parent.name}/exercise.toml"
    for path in sorted((ROOT / "exercises").glob("*/exercise.toml"))
)
#: What the program says to students (ladder/common/wording.py), and what lessons say themselves.
PROGRAM = "ladder"
PREDICTIONS = "ladder/course/lessons/questions.py"
SOURCES = (*PAGES, *LESSONS, *RUNGS, *PICTURES, *EXERCISES, PREDICTIONS, PROGRAM)
LANGUAGES = ("zh-CN",)

_MARKDOWN = MarkdownIt("commonmark").enable("table")
#: Not language: code, addresses, formulas, times, ranges.
_NO_WORDS = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\$\$.*?\$\$|\$[^$]*\$|https?://\S+|[\d.] [um]?s\b|(?<=\d) to (?=\d)", re.DOTALL
)
#: When something was measured: another day needs no other translation.
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
#: A hint that is the answer.
_CODE = re.compile(r"[;{}]$", re.MULTILINE)
#: What a lesson says below a task (ladder/course/lessons/magics.py).
_REQUEST = "To write: {goal}. Then run the cell again."
#: A text in an SVG, with its tags.
_LABEL = re.compile(r"(<(?:text|title)\b[^>]*>)([^<]*)(?=</)")
#: A number, or a rung's name.
_FIGURE = re.compile(r"(?<![\w.])(?:\d+(?:[.,]\d+)*|[a-z]+\d+[a-z]?_\w+)")
#: A label that is code.
_CALL = re.compile(r"[a-z].*\w[\[(]")
_WORD = re.compile(r"\b[A-Za-z][a-z]+\b")
Translate = Callable[[str], str]


@dataclass(frozen=True)
class Piece:
    """A message in its place: the lines ``first`` to ``last`` (exclusive), or a cell of a line."""

    first: int
    last: int
    text: str

    @property
    def message(self) -> str:
        """In one line, since where its source is wrapped says nothing, and with ``{date}`` for each date."""
        return _DATE.sub("{date}", " ".join(self.text.split()))

    def dated(self, translation: str) -> str:
        """A translation of the message with the dates."""
        for date in _DATE.findall(self.text):
            translation = translation.replace("{date}", date, 1)
        return translation


def pieces(markdown: str) -> Iterator[Piece]:
    """What there is to translate in a Markdown text, in order."""
    for token in _MARKDOWN.parse(markdown):
        if token.type == "inline" and token.map and _WORD.search(_NO_WORDS.sub(" ", token.content)):
            first, last = token.map
            yield Piece(first, last, token.content)


def translated(markdown: str, translate: Translate) -> str:
    """The text with every message replaced by what ``translate`` makes of it."""
    lines: list[str | None] = list(markdown.split("\n"))
    # From the end, so that what stands before a cell of the same row stays where it is.
    for piece in reversed(list(pieces(markdown))):
        line = lines[piece.first] or ""
        begin, _, _ = piece.text.partition("\n")
        at = line.rindex(begin)
        rest = line[at + len(begin) :]
        lines[piece.first] = line[:at] + piece.dated(translate(piece.message)) + rest
        lines[piece.first + 1 : piece.last] = [None] * (piece.last - piece.first - 1)
    return "\n".join(line for line in lines if line is not None)


def messages(source: str) -> Iterator[str]:
    """Those of a page, a lesson, an exercise, the predictions or the program, named by its path here."""
    if source == PREDICTIONS:
        yield from WORDS
        for question in QUESTIONS.values():
            yield from (question.hint, question.because)
        return
    if source == PROGRAM:
        yield from _messages_of_program()
        return
    if source.endswith(".toml"):
        for texts in _words_of_exercise(ROOT / source).values():
            yield from (text for text in texts if not _CODE.search(text))
        return
    if source.endswith(".svg"):
        yield from labels((ROOT / source).read_text(encoding="utf-8"))
        return
    for text in _texts(ROOT / source):
        yield from (piece.message for piece in pieces(text))
    if source.endswith(".ipynb"):
        for data in _drawings(nbformat.read(ROOT / source, as_version=4)):
            yield from labels(data["image/svg+xml"])


def _messages_of_program() -> Iterator[str]:
    """What is said in the sources, and what stands in tables: of the emulator, and of exercises' checks."""
    for path in sorted((ROOT / "ladder").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "said":
                yield from _literals(node.args[0])
    yield from (
        *KINDS.values(),
        *KEYS,
        *QUERIES,
        *map(counter_in_english, (*COUNTERS, BLOCK_BARRIERS, GLOBAL_ATOMICS)),
    )
    yield from (*ADVICE, *ADVICE.values(), *MORE_ADVICE, *FORMS, *SENTENCES, *PRINTED, *TRANSCRIPT)
    for exercise in exercises():
        yield from (case.reason for case in exercise.cases if case.reason)
        yield from (run.reason for run in exercise.runs if run.reason)
        answers = exercise.folder / "answers.toml"
        known = tomllib.loads(answers.read_text(encoding="utf-8")) if answers.is_file() else {}
        yield from (answer["why"] for answer in known.get("right", ()))


def _literals(node: ast.expr) -> Iterator[str]:
    """The texts that the expression may be, if these are literals."""
    if isinstance(node, ast.IfExp):
        yield from (*_literals(node.body), *_literals(node.orelse))
    elif isinstance(node, ast.Constant):
        yield str(node.value)


def _texts(path: Path) -> Iterable[str]:
    if path.suffix == ".ipynb":
        return [holder[key] for holder, key in _prose(nbformat.read(path, as_version=4))]
    return [path.read_text(encoding="utf-8")]


def _words_of_exercise(path: Path) -> dict[str, list[str]]:
    """What an exercise says, by its keys: paragraphs, or the hints one by one."""
    exercise = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        "title": [exercise["title"]],
        "goal": [exercise["gap"]["goal"]],
        "task": paragraphs(exercise["task"]),
        "hints": [hint.strip() for hint in exercise["hints"]],
        "afterword": paragraphs(exercise["afterword"]),
    }


def _translated_task(markdown: str, translate: Translate) -> str:
    """What ``%exercise NAME`` shows (ladder/course/lessons/magics.py), in another language."""
    title, *task, request = (re.sub(r"\\(.)", r"\1", part) for part in markdown.strip().split("\n\n"))
    before, after = _REQUEST.split("{goal}")
    goal = request.removeprefix(before).removesuffix(after)
    words = [translate(part) for part in task]
    own = translate(goal)
    if own != goal or not _WORD.search(goal):  # a formula is the same in every language
        request = translate(_REQUEST).format(goal=own)
    shown = [f"**{as_markdown(translate(title.strip('*')))}**", *map(as_markdown, [*words, request])]
    return "\n\n".join(shown)


def labels(svg: str) -> Iterator[str]:
    """What there is to translate in a drawing. ``{0}``, ``{1}``, ... stand for a label's figures. The title
    is a label, or several with semicolons between.
    """
    for _, text in _LABEL.findall(svg):
        for part in html.unescape(text).split("; "):
            message, _ = _without_figures(part)
            if _is_language(message):
                yield message


def _is_language(label: str) -> bool:
    return bool(_WORD.search(label)) and not _CALL.match(label)


def translated_drawing(svg: str, translate: Translate) -> str:
    """The drawing with other labels. Browsers have a font for each language, so the place stays as it is."""

    def parts(text: str) -> str:
        return "; ".join(translated_label(part, translate) for part in text.split("; "))

    return _LABEL.sub(lambda found: found[1] + html.escape(parts(html.unescape(found[2])), quote=False), svg)


def translated_label(text: str, translate: Translate) -> str:
    """A label with its figures, in another language."""
    message, figures = _without_figures(text)
    if not _is_language(message):
        return text
    said = translate(message)
    for number, figure in enumerate(figures):
        said = said.replace(f"{{{number}}}", figure)
    return said


def _without_figures(label: str) -> tuple[str, list[str]]:
    """The label with its figures numbered, and the figures."""
    text, number = " ".join(label.split()), itertools.count()
    return _FIGURE.sub(lambda _: f"{{{next(number)}}}", text), _FIGURE.findall(text)


def _drawings(notebook: nbformat.NotebookNode) -> Iterator[dict[str, str]]:
    """The data of outputs that have a drawing."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/svg+xml" in output.get("data", {}):
                yield output.data


def _prose(notebook: nbformat.NotebookNode) -> Iterator[tuple[nbformat.NotebookNode, str]]:
    """Where Markdown stands in a notebook, as nodes and their keys: in cells, and in what cells put out."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield cell, "source"
        if cell.source.startswith("%exercise "):
            continue
        for output in cell.get("outputs", []):
            if "text/markdown" in output.get("data", {}):
                yield output.data, "text/markdown"


def updated(catalogue: polib.POFile, sources: Iterable[str]) -> polib.POFile:
    """A catalogue of all messages of the sources, with the translations that are there already."""
    known = {entry.msgid: entry.msgstr for entry in catalogue}
    found: dict[str, list[tuple[str, str]]] = {}
    for source in sources:
        for message in messages(source):
            places = found.setdefault(message, [])
            if (source, "") not in places:
                places.append((source, ""))
    fresh = polib.POFile(wrapwidth=0)
    fresh.metadata = catalogue.metadata or {"Content-Type": "text/plain; charset=UTF-8"}
    fresh.extend(
        polib.POEntry(msgid=message, msgstr=known.get(message, ""), occurrences=places)
        for message, places in found.items()
    )
    return fresh


def catalogue_path(language: str) -> Path:
    return wording.LOCALE / f"{language}.po"


def read_catalogue(language: str) -> polib.POFile:
    """The language's catalogue; an empty one where there is none yet."""
    path = catalogue_path(language)
    return polib.pofile(str(path), wrapwidth=0) if path.exists() else polib.POFile(wrapwidth=0)


def translator(language: str) -> Translate:
    """What a message is in the language; itself as long as nobody has translated it."""
    return translator_of(read_catalogue(language))


def translator_of(catalogue: polib.POFile) -> Translate:
    """What a message is in the catalogue's language."""
    known = {entry.msgid: entry.msgstr for entry in catalogue}
    return lambda message: known.get(message) or message


def page_name(source: str, language: str) -> str:
    """``README.zh-CN.md`` of ``README.md``."""
    name, _, kind = source.rpartition(".")
    return f"{name}.{language}.{kind}"


def headings(markdown: str) -> Iterator[str]:
    """The texts of a Markdown text's headings, in order."""
    tokens = _MARKDOWN.parse(markdown)
    for before, token in itertools.pairwise(tokens):
        if before.type == "heading_open":
            yield " ".join(token.content.split())


def anchor(heading: str) -> str:
    """The name by which links refer to a heading, on GitHub and on the site alike."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def with_anchors(text: str, source: str, translate: Translate, among: Iterable[str]) -> str:
    """A translated page whose links to headings of the pages ``among`` name those that are there now."""
    for other in among:
        link = "" if other == source else os.path.relpath(other, Path(source).parent)
        for heading in headings((ROOT / other).read_text(encoding="utf-8")):
            new = anchor(translate(heading))
            text = re.sub(rf"\]\({re.escape(link)}#{re.escape(anchor(heading))}\)", f"]({link}#{new})", text)
    return text


def translated_text(source: str, translate: Translate, among: Iterable[str] = PAGES) -> str:
    """A page in another language, with links to the English pages; those ``among`` are translated, too."""
    text = translated((ROOT / source).read_text(encoding="utf-8"), translate)
    return with_anchors(text, source, translate, among)


def translated_readme(language: str, translate: Translate) -> str:
    """The README, whose links to other translated pages lead to the site."""
    text = translated_text(README, translate, among=(*PAGES, *RUNGS))
    for page in {*PAGES, *LESSONS, *RUNGS} - {README}:
        # gettext writes zh-CN, Sphinx zh_CN.
        address = project.site(f"{language.replace('-', '_')}/{Path(page).with_suffix('.html')}")
        text = re.sub(rf"\]\({re.escape(page)}(?=[)#])", f"]({address}", text)
    return text


def write_lesson(source: str, target: Path, translate: Translate) -> None:
    """The notebook with its prose and drawings translated. Code stays as it is, and so does what programs
    print, except the debugger.
    """
    notebook = nbformat.read(ROOT / source, as_version=4)
    for holder, key in _prose(notebook):
        holder[key] = translated(holder[key], translate)
    for drawing in _drawings(notebook):
        drawing["image/svg+xml"] = translated_drawing(drawing["image/svg+xml"], translate)
    for cell in notebook.cells:
        if "lessons.debug(" in cell.source:
            for output in cell.outputs:
                output["text"] = translated_transcript(output["text"], translate)
        if cell.source.startswith("%exercise ") and cell.outputs:
            data = cell.outputs[0].get("data", {})
            if "text/markdown" in data:
                data["text/markdown"] = _translated_task(data["text/markdown"], translate)
    nbformat.write(notebook, target)


def counts(catalogue: polib.POFile, source: str) -> tuple[int, int]:
    """Of a source's messages (translated, all)."""
    own = [entry for entry in catalogue if (source, "") in entry.occurrences]
    return sum(bool(entry.msgstr) for entry in own), len(own)


def main() -> int:
    parser = argparse.ArgumentParser(description="Brings the translations up to date with the English texts.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if something is out of date"
    )
    options = parser.parse_args()
    stale = False
    for language in LANGUAGES:
        catalogue = updated(read_catalogue(language), SOURCES)
        files = {catalogue_path(language): str(catalogue)}
        translate = translator_of(catalogue)
        files[ROOT / page_name(README, language)] = translated_readme(language, translate)
        for path, text in files.items():
            if path.exists() and path.read_text(encoding="utf-8") == text:
                continue
            stale = True
            if not options.check:
                path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: {'out of date' if options.check else 'written'}")
        for source in SOURCES:
            done, all_of_them = counts(catalogue, source)
            print(f"{language} {source}: {done} of {all_of_them} translated")
        for entry in catalogue.untranslated_entries():
            print(f"{language} untranslated: {entry.msgid}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
