"""Lessons that are run again say what is kept of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools.pages import lessons

ROOT = Path(__file__).parents[2]

SCRIPTS = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
#: What may differ between runs: an object's address, and the tags with which Pygments colours a listing.
#: Lessons keep no times.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")
_TAG = re.compile(r"<[^>]*>")


def texts(outputs: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    """The texts of a cell's outputs by kind. Drawings are left out: fonts move them by hundredths."""
    found = [output.get("data", {"text/plain": output.get("text", "")}) for output in outputs]
    return [
        sorted((kind, _bare(kind, text)) for kind, text in one.items() if kind.startswith("text/"))
        for one in found
    ]


def _bare(kind: str, text: str) -> str:
    return _TAG.sub("", text) if kind == "text/html" else _ADDRESS.sub(">", text)


@pytest.mark.full
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_lesson_that_is_run_again_says_what_is_kept(script: Path) -> None:
    for module in re.findall(r'find_spec\("(\w+)"\)', script.read_text(encoding="utf-8")):
        pytest.importorskip(module)
    kept = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    run = lessons.run(script)
    for cell, again in zip(kept.cells, run.cells, strict=True):
        if cell.cell_type == "code":
            assert texts(again.outputs) == texts(cell.outputs), cell.source
