"""Slides and handouts made of the lessons: ``python -m tools.pages.slides`` writes build/slides/.

``index.html`` is the start page. Each lesson has a deck, whose notes for the speaker hold the prose, and a
handout: one page of A4 to print, with space to draw. ``answers.html`` has all questions with their answers,
for teachers. Nothing comes from a network: reveal.js lies beside the pages, and formulas are MathML.
``zh-CN/`` has the same in Chinese.
"""

from __future__ import annotations

import argparse
import html
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import jinja2
import nbformat
from nbconvert.filters import markdown2html

from ladder.common.progress import steps
from ladder.course.lessons.predictions import PREDICT_FIRST
from ladder.course.lessons.questions import QUESTIONS
from ladder.errors import LadderError
from ladder.show.render.document import document
from tools.pages import translations
from tools.pages.decks import Deck, deck, with_mathml
from tools.pages.quizzes import answer_text, question_of

ROOT = Path(__file__).resolve().parents[2]
#: Below the folder of slides.
_REVEAL = "reveal.js"
#: What slides and handouts say themselves, in English and in Chinese.
_WORDS = {
    "What do you say?": "你怎么看？",
    "Hint": "提示",
    "Answer": "答案",
    "Exercise": "练习",
    "Space to draw": "画图处",
    "My answer": "我的答案",
    "Lessons as slides": "课程幻灯片",
    "Handout": "讲义",
    "Answers to all questions": "所有问题的答案",
    "Arrow keys change the slide. S opens the speaker's window.": "方向键翻页，S 打开讲者窗口。",
}
#: What a handout holds beside its picture and the space to draw.
_POINTS, _QUESTIONS = 5, 3
_TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(ROOT / "docs"), autoescape=False)
T = TypeVar("T")


def words_of(language: str) -> dict[str, str]:
    """The slides' own words by their English."""
    if language == "en":
        return {PREDICT_FIRST: PREDICT_FIRST, **{word: word for word in _WORDS}}
    return {PREDICT_FIRST: translations.translator(language)(PREDICT_FIRST), **_WORDS}


def deck_of(lesson: Path, language: str = "en") -> Deck:
    """The deck of a lesson (.ipynb)."""
    if language == "en":
        return deck(nbformat.read(lesson, as_version=4), words_of(language), QUESTIONS)
    translate = translations.translator(language)
    questions = {
        name: replace(one, hint=translate(one.hint), because=translate(one.because))
        for name, one in QUESTIONS.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / lesson.name
        translations.write_lesson(str(lesson.relative_to(ROOT)), target, translate)
        return deck(nbformat.read(target, as_version=4), words_of(language), questions)


def deck_page(made: Deck, language: str = "en", reveal: str = _REVEAL) -> str:
    """A deck as one HTML page, which finds reveal.js in the folder ``reveal``."""
    return _TEMPLATES.get_template("slides.html.j2").render(deck=made, language=language, reveal=reveal)


def handout_page(made: Deck, language: str = "en") -> str:
    """One page of A4: what the sections say, the first picture, questions, and space to draw."""
    sections: dict[str, str] = {}
    for slide in made.slides[1:]:
        if len(slide.points) > 0 and not slide.is_quiz:
            sections.setdefault(slide.title, slide.points[0])
    return _TEMPLATES.get_template("handout.html.j2").render(
        deck=made,
        language=language,
        words=words_of(language),
        points=spread([*sections.items()], _POINTS),
        questions=spread(made.questions, _QUESTIONS),
    )


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many of the items, from the begin to the end."""
    count = min(most, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def start_page(decks: Mapping[str, Deck], language: str = "en") -> str:
    """Links to each lesson's slides and handout. ``decks`` has the decks by the stems of their files."""
    words = words_of(language)
    rows = "\n".join(
        f'<li><a href="{stem}.html">{one.title}</a> · '
        f'<a href="{stem}.handout.html">{words["Handout"]} {stem.split("_")[0]}</a></li>'
        for stem, one in decks.items()
    )
    title, how, answers = (
        words[word]
        for word in (
            "Lessons as slides",
            "Arrow keys change the slide. S opens the speaker's window.",
            "Answers to all questions",
        )
    )
    other = ("zh-CN/index.html", "中文") if language == "en" else ("../index.html", "English")
    links = f'<a href="answers.html">{answers}</a> · ' if language == "en" else ""
    body = (
        f"<main><h1>{title}</h1>\n<p>{how}</p>\n<ul>{rows}</ul>\n"
        f'<p>{links}<a href="{other[0]}">{other[1]}</a></p></main>'
    )
    return document(title, body).replace('lang="en"', f'lang="{language}"', 1)


def questions_of(notebook: nbformat.NotebookNode) -> Iterator[tuple[str, str]]:
    """The names of a lesson's questions, in order, each with the prose before it, which asks it."""
    prose = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = cell.source
        elif (name := question_of(cell)) is not None:
            yield name, prose


def answer_key(lessons: list[Path]) -> str:
    """All questions of the lessons with hints and answers, as one page."""
    body = ["<main><h1>Answers</h1>", "<p>As measured when this page was made.</p>"]
    for lesson in lessons:
        questions = list(questions_of(nbformat.read(lesson, as_version=4)))
        body += [f"<h2>{html.escape(lesson.stem)}</h2>"] * bool(questions)
        for number, (name, prose) in enumerate(questions, start=1):
            question = QUESTIONS[name]
            text = "\n".join(line for line in prose.splitlines() if not line.startswith("#"))
            body.append(
                f"<h3>{number}. {html.escape(name)}</h3>\n{markdown2html(with_mathml(text))}"
                f"<p>{answer_text(question)}</p>"
                f'<p class="note">Hint: {html.escape(question.hint)}</p>'
            )
    return document("Answers", "\n".join([*body, "</main>"]))


def reveal_source() -> Path:
    """reveal.js as sphinx-revealjs brings it. Raises :class:`LadderError` where that is not installed."""
    found = importlib.util.find_spec("sphinx_revealjs")
    if found is None or found.origin is None:
        raise LadderError(
            "slides need reveal.js", "pip install sphinx-revealjs, or name a copy: --reveal DIR"
        )
    return Path(found.origin).parent / "_static" / "revealjs"


def main() -> int:
    parser = argparse.ArgumentParser(description="Slides and handouts made of the lessons.")
    parser.add_argument("lessons", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "slides", metavar="DIR")
    parser.add_argument(
        "--reveal", type=Path, metavar="DIR", help="a copy of reveal.js, with dist and plugin"
    )
    options = parser.parse_args()
    lessons = options.lessons or sorted((ROOT / "notebooks").glob("*.ipynb"))
    is_whole = not options.lessons
    options.into.mkdir(parents=True, exist_ok=True)
    shutil.copytree(options.reveal or reveal_source(), options.into / _REVEAL, dirs_exist_ok=True)
    languages = ("en", *translations.LANGUAGES) if is_whole else ("en",)
    with steps("Drawing", len(lessons) * len(languages)) as progress:
        for language in languages:
            folder = options.into if language == "en" else options.into / language
            folder.mkdir(exist_ok=True)
            decks = {}
            for lesson in lessons:
                with progress.step(f"{lesson.stem} {language}"):
                    decks[lesson.stem] = made = deck_of(lesson, language)
                    reveal = _REVEAL if language == "en" else f"../{_REVEAL}"
                    page, handout = deck_page(made, language, reveal), handout_page(made, language)
                    (folder / f"{lesson.stem}.html").write_text(page, encoding="utf-8")
                    (folder / f"{lesson.stem}.handout.html").write_text(handout, encoding="utf-8")
            (folder / "index.html").write_text(start_page(decks, language), encoding="utf-8")
    (options.into / "answers.html").write_text(answer_key(lessons), encoding="utf-8")
    print(options.into / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
