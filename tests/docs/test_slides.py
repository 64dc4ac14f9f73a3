"""Lessons as slides."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

SCRIPT = Path(__file__).parents[2] / "docs" / "slides.py"


@pytest.fixture(scope="module")
def slides() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slides", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lesson(tmp_path: Path) -> Path:
    def shown(text: str, kind: str) -> nbformat.NotebookNode:
        return new_code_cell(text, outputs=[new_output("display_data", {kind: "what came out"})])

    own = new_markdown_cell("said by the instructor", metadata={"slideshow": {"slide_type": "notes"}})
    cells = [
        new_markdown_cell("# Title"),
        new_code_cell("import nothing"),
        new_markdown_cell("prose"),
        shown("print(1)", "text/plain"),
        new_markdown_cell("more prose"),
        shown("draw()", "image/svg+xml"),
        own,
        new_markdown_cell("## Section"),
    ]
    path = tmp_path / "lesson.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_what_begins_a_slide(slides: ModuleType, lesson: Path) -> None:
    notebook = nbformat.read(lesson, as_version=4)
    slides.set_slide_types(notebook)
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in notebook.cells]
    assert kinds == ["slide", "skip", "-", "-", "subslide", "subslide", "notes", "slide"]


def test_a_heading_within_a_cell_begins_a_slide_too(slides: ModuleType) -> None:
    notebook = new_notebook(
        cells=[new_markdown_cell("prose, #1\n\n## One\ntext\n### Two"), new_code_cell("# no")]
    )
    slides.split_at_headings(notebook)
    assert [cell.source for cell in notebook.cells] == ["prose, #1", "## One\ntext", "### Two", "# no"]


def test_pages(slides: ModuleType, lesson: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["slides.py", str(lesson), "--into", str(tmp_path / "out")])
    assert slides.main() == 0
    page = (tmp_path / "out" / "lesson.html").read_text()
    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "lesson.html")
    assert "what came out" in page and "import nothing" not in page and "print(1)" not in page
    assert page.count("<section>") >= 2 + 2 + 2  # slides, and those below them
