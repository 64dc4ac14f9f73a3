"""Slides made of the lessons, with outputs: ``python -m tools.pages.slides`` writes build/slides/*.html.

A heading begins a slide; a picture, a program of ``%%cuda``, and prose after an output, one below it. The
Python that makes the outputs is left out. A prediction becomes a quiz: the question, then a hint, then the
measurement and the reason, one after another, with the answer in the speaker's notes. Metadata of a cell's
own (``slideshow.slide_type``) have the last word. Nothing comes from a network: reveal.js lies beside the
pages, and formulas are MathML. ``answers.html`` has all questions with their answers, for teachers.
"""

from __future__ import annotations

import argparse
import copy
import html
import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter
from nbconvert.filters import markdown2html
from nbformat.v4 import new_markdown_cell

from ladder.common.progress import steps
from ladder.course.lessons.questions import QUESTIONS, Question
from ladder.errors import LadderError
from ladder.show.render.document import document
from tools.pages.formulas import mathml
from tools.pages.quizzes import answer_text, question_of, replace_notes

ROOT = Path(__file__).resolve().parents[2]
#: Below the folder of slides.
_REVEAL = "reveal.js"
#: Code, which stays, or a formula.
_MATH = re.compile(r"(`[^`]*`)|\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)


def make_quizzes(notebook: nbformat.NotebookNode) -> None:
    """Puts a quiz in place of each cell that judges a prediction. Requests to predict first go."""
    for number, cell in enumerate(notebook.cells):
        if (name := question_of(cell)) is not None:
            notebook.cells[number] = new_markdown_cell(_quiz(QUESTIONS[name]))
    replace_notes(notebook, "")


def show_programs(notebook: nbformat.NotebookNode) -> None:
    """Puts each CUDA program on a slide, and its output on the next."""
    below = {"slideshow": {"slide_type": "subslide"}}
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("%%cuda"):
            program = cell.source.partition("\n")[2]
            cells.append(new_markdown_cell(f"```cpp\n{program}\n```", metadata=below))
            cell.metadata.update(below)
        cells.append(cell)
    notebook.cells = cells


def _quiz(question: Question) -> str:
    hint, answer = html.escape(question.hint), answer_text(question)
    return (
        f'<div class="quiz"><p>What do you say?</p><p class="fragment"><i>Hint:</i> {hint}</p>'
        f'<p class="fragment">{answer}</p></div>\n<aside class="notes">{answer}</aside>'
    )


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
    body = ["<h1>Answers</h1>", "<p>As measured when this page was made.</p>"]
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
    return document("Answers", "\n".join(body))


def with_mathml(text: str) -> str:
    """The text with its formulas as MathML, which browsers know, so that formulas need no script."""

    def drawn(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        return mathml(found[2] or found[3], display="block" if found[2] else "inline")

    return _MATH.sub(drawn, text)


def formulas_as_mathml(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_mathml(cell.source)


def set_slide_types(notebook: nbformat.NotebookNode) -> None:
    """Says of each cell what it is on a slide: ``slide``, ``subslide``, ``-`` (it goes on) or ``skip``."""
    after_output = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            kind = "slide" if cell.source.startswith("#") else "subslide" if after_output else "-"
            after_output = False
        else:
            kind = "skip" if not cell.get("outputs") else "subslide" if _is_picture(cell) else "-"
            after_output |= kind != "skip"
        own = cell.metadata.setdefault("slideshow", {})
        own.setdefault("slide_type", kind)


def split_at_headings(notebook: nbformat.NotebookNode) -> None:
    """Makes a cell of its own of each heading with what follows it."""
    cells = []
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            cells.append(cell)
            continue
        for text in re.split(r"^(?=#{1,6} )", cell.source, flags=re.MULTILINE):
            if text.strip():
                cells.append(new_markdown_cell(text.strip(), metadata=copy.deepcopy(cell.metadata)))
    notebook.cells = cells


def _is_picture(cell: nbformat.NotebookNode) -> bool:
    kinds = [kind for output in cell.outputs for kind in output.get("data", {})]
    return any(kind.startswith("image/") for kind in kinds)


def page(path: Path) -> str:
    """The lesson at ``path`` (.ipynb) as one HTML page of slides, without the code that made its outputs."""
    notebook = nbformat.read(path, as_version=4)
    make_quizzes(notebook)
    show_programs(notebook)
    split_at_headings(notebook)
    set_slide_types(notebook)
    formulas_as_mathml(notebook)
    exporter = SlidesExporter(
        exclude_input=True,
        exclude_output_prompt=True,
        extra_template_paths=[str(ROOT / "docs")],
        template_file="slides.html.j2",
    )
    exporter.reveal_url_prefix = _REVEAL
    return str(exporter.from_notebook_node(notebook, {"metadata": {"name": path.stem}})[0])


def reveal_source() -> Path:
    """reveal.js as sphinx-revealjs brings it. Raises :class:`LadderError` where that is not installed."""
    found = importlib.util.find_spec("sphinx_revealjs")
    if found is None or found.origin is None:
        raise LadderError(
            "slides need reveal.js", "pip install sphinx-revealjs, or name a copy: --reveal DIR"
        )
    return Path(found.origin).parent / "_static" / "revealjs"


def main() -> int:
    parser = argparse.ArgumentParser(description="Slides made of the lessons.")
    parser.add_argument("lessons", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "slides", metavar="DIR")
    parser.add_argument(
        "--reveal", type=Path, metavar="DIR", help="a copy of reveal.js, with dist and plugin"
    )
    options = parser.parse_args()
    lessons = options.lessons or sorted((ROOT / "notebooks").glob("*.ipynb"))
    options.into.mkdir(parents=True, exist_ok=True)
    shutil.copytree(options.reveal or reveal_source(), options.into / _REVEAL, dirs_exist_ok=True)
    with steps("Drawing", len(lessons)) as progress:
        for lesson in lessons:
            target = options.into / f"{lesson.stem}.html"
            with progress.step(lesson.stem):
                target.write_text(page(lesson), encoding="utf-8")
            print(target)
    (options.into / "answers.html").write_text(answer_key(lessons), encoding="utf-8")
    print(options.into / "answers.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
