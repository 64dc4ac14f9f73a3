#!/usr/bin/env python3
"""Runs the lessons, each a script in notebooks/, and writes the notebook beside it with its outputs.

    python -m tools.pages.lessons [LESSON.py ...]

Numbers of cells take the place of random names, and no times are kept, so that a second run changes nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
#: jupytext's words for the scripts, as in pyproject.toml.
FORMAT = {"extension": ".py", "format_name": "percent", "custom_cell_magics": "cuda"}


def run(script: Path) -> nbformat.NotebookNode:
    """The notebook of a lesson, executed in its folder. Raises ``CellExecutionError``."""
    notebook = nbformat.v4.new_notebook(cells=jupytext.read(script, fmt=FORMAT).cells)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    client = NotebookClient(
        notebook,
        timeout=600,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": script.parent}},
    )
    client.execute(env={**os.environ, "LADDER_LANGUAGE": "en"})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # What said that something was being built, and is empty since it is.
            cell.outputs = [output for output in cell.outputs if output.get("data") != {"text/plain": ""}]
    return notebook


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the lessons and keeps their outputs.")
    parser.add_argument("lessons", nargs="*", type=Path, help="default: all of notebooks/")
    options = parser.parse_args()
    for script in options.lessons or sorted((ROOT / "notebooks").glob("[0-9]*.py")):
        began = time.monotonic()
        nbformat.write(run(script), script.with_suffix(".ipynb"))
        print(f"{script.stem}: {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
