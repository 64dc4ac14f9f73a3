"""Slides made of the lessons, with their outputs: ``python docs/slides.py`` writes build/slides/*.html.

A heading begins a slide; a picture, and prose after an output, one below it. What is not to be shown to a
room, code without an output, is left out. Metadata of a cell's own (``slideshow.slide_type``) have the last
word. The pages load reveal.js from the network, unless ``--reveal`` names a copy.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter
from nbformat.v4 import new_markdown_cell

ROOT = Path(__file__).resolve().parent.parent
_CDN = "https://cdnjs.cloudflare.com/ajax/libs/reveal.js/4.5.0"


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


def page(path: Path, reveal: str = _CDN) -> str:
    """The lesson at ``path`` (.ipynb) as one HTML page of slides, without the code that made its outputs."""
    notebook = nbformat.read(path, as_version=4)
    split_at_headings(notebook)
    set_slide_types(notebook)
    exporter = SlidesExporter(exclude_input=True, exclude_output_prompt=True)
    exporter.reveal_scroll = True
    exporter.reveal_url_prefix = reveal
    return str(exporter.from_notebook_node(notebook, {"metadata": {"name": path.stem}})[0])


def main() -> int:
    parser = argparse.ArgumentParser(description="Slides made of the lessons.")
    parser.add_argument("lessons", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "slides", metavar="DIR")
    parser.add_argument("--reveal", default=_CDN, metavar="URL", help="where reveal.js is")
    options = parser.parse_args()
    lessons = options.lessons or sorted((ROOT / "notebooks").glob("*.ipynb"))
    options.into.mkdir(parents=True, exist_ok=True)
    for lesson in lessons:
        target = options.into / f"{lesson.stem}.html"
        target.write_text(page(lesson, options.reveal), encoding="utf-8")
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
