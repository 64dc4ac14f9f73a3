"""Lessons as slides."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from ladder.course.lessons.predictions import PREDICT_FIRST
from tools.pages import slides


@pytest.fixture
def lesson(tmp_path: Path) -> Path:
    def shown(text: str, kind: str) -> nbformat.NotebookNode:
        return new_code_cell(text, outputs=[new_output("display_data", {kind: "what came out"})])

    own = new_markdown_cell("said by the instructor", metadata={"slideshow": {"slide_type": "notes"}})
    cells = [
        new_markdown_cell("# Title"),
        new_code_cell("import nothing"),
        new_markdown_cell("prose of length $d$ and `$PATH$`"),
        shown("print(1)", "text/plain"),
        new_markdown_cell("more prose"),
        shown("draw()", "image/svg+xml"),
        own,
        new_markdown_cell("## Predict\n\nWith 1000 *elements*, and $d$ blocks: how many idle threads?"),
        new_code_cell('lessons.predict("threads_without_element", answer)'),
        new_markdown_cell("## Section"),
    ]
    path = tmp_path / "lesson.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_what_begins_a_slide(lesson: Path) -> None:
    notebook = nbformat.read(lesson, as_version=4)
    slides.set_slide_types(notebook)
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in notebook.cells]
    assert kinds == ["slide", "skip", "-", "-", "subslide", "subslide", "notes", "slide", "skip", "slide"]


def test_a_heading_within_a_cell_begins_a_slide_too() -> None:
    notebook = new_notebook(
        cells=[new_markdown_cell("prose, #1\n\n## One\ntext\n### Two"), new_code_cell("# no")]
    )
    slides.split_at_headings(notebook)
    assert [cell.source for cell in notebook.cells] == ["prose, #1", "## One\ntext", "### Two", "# no"]


def test_a_program_of_cuda_is_shown_before_what_came_of_it() -> None:
    ran = new_code_cell("%%cuda --check\nint main() {}", outputs=[new_output("stream", text="42")])
    notebook = new_notebook(cells=[ran, new_code_cell("import nothing")])
    slides.show_programs(notebook)
    slides.set_slide_types(notebook)
    program, result, _ = notebook.cells
    assert program.source == "```cpp\nint main() {}\n```" and result is ran
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in notebook.cells]
    assert kinds == ["subslide", "subslide", "skip"]


def test_pages(lesson: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    reveal = tmp_path / "reveal"
    (reveal / "dist").mkdir(parents=True)
    (reveal / "dist" / "reveal.js").write_text("// the program")
    out = tmp_path / "out"
    words = ["slides.py", str(lesson), "--into", str(out), "--reveal", str(reveal)]
    monkeypatch.setattr(sys, "argv", words)
    assert slides.main() == 0
    page = (out / "lesson.html").read_text()
    assert capsys.readouterr().out.split() == [str(out / "lesson.html"), str(out / "answers.html")]
    assert "what came out" in page and "import nothing" not in page and "print(1)" not in page
    assert page.count("<section>") >= 2 + 2 + 2  # slides, and vertical ones
    # Nothing comes from the network: the page loads only files beside it.
    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert 'src="reveal.js/dist/reveal.js"' in page and (out / "reveal.js" / "dist" / "reveal.js").is_file()
    assert "<math" in page and "$d$" not in page and "<code>$PATH$</code>" in page


def test_no_slide_asks_to_run_a_cell() -> None:
    shown, note = (new_output("display_data", {"text/markdown": text}) for text in ("42", PREDICT_FIRST))
    notebook = new_notebook(cells=[new_code_cell('lessons.after("q_row", show)', outputs=[shown, note])])
    slides.make_quizzes(notebook)
    assert notebook.cells[0].outputs == [shown]


def test_a_prediction_is_a_quiz(lesson: Path, tmp_path: Path) -> None:
    page = slides.page(lesson)
    [quiz] = re.findall(r'<div class="quiz">.*?</div>', page, re.DOTALL)
    question = slides.QUESTIONS["threads_without_element"]
    # Hint and answer each appear at a key press.
    assert quiz.count('class="fragment"') == 2 and quiz.index(question.hint) < quiz.index("<b>24</b>")
    notes = re.findall(r'<aside class="notes">.*?</aside>', page, re.DOTALL)
    assert any("<b>24</b>" in note for note in notes) and not any(question.hint in note for note in notes)
    key = slides.answer_key([lesson])
    places = [
        key.index(text) for text in ("With 1000 <em>elements</em>", "<math", "<b>24</b>", question.hint)
    ]
    assert places == sorted(places) and "Predict" not in key
