"""The lessons as they are kept: scripts and notebooks agree, and their outputs can be shown to anybody.

That they run from top to bottom is tested by nbmake, which executes each of them (notebooks/conftest.py).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

jupytext = pytest.importorskip("jupytext")

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: A path on somebody's machine, and what a program says when all is not well.
_MACHINE = re.compile(
    r"(?<![\w.])/(home|root|tmp|usr|opt|work|Users|content|var)/|site-packages|Traceback|Warning:"
)


def cells(path: Path) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]


def outputs(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def texts(output: dict[str, Any]) -> str:
    kinds = output.get("data", {"text/plain": output.get("text", "")})
    return "\n".join("".join(text) for kind, text in kinds.items() if kind.startswith("text/"))


def test_there_is_a_lesson_for_each_rung() -> None:
    """Each of the first four. The rungs that came later have none; no lesson is of a rung that is gone."""
    from ladder import stages

    names = [path.stem.partition("_")[2] for path in LESSONS]
    rungs = {folder.parent.name for folder in stages.root().glob("*/stage.toml")}
    of_rungs = [name for name in names if re.match(r"[a-z]+\d+[a-z]?_", name)]
    assert of_rungs == ["v1_minimal", "v2_warp_mma", "v3_swizzle", "v4_tk_tiles"]
    assert set(of_rungs) <= rungs
    assert sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.py")) == [p.stem for p in LESSONS]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_script_and_notebook_agree(path: Path) -> None:
    assert cells(path) == cells(path.with_suffix(".py"))


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_outputs_are_kept_and_clean(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    found = outputs(path)
    assert any("image/png" in output.get("data", {}) for output in found)
    assert [output for output in found if output["output_type"] == "error"] == []
    assert [text for text in map(texts, found) if _MACHINE.search(text)] == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_predictions_are_left_to_the_reader(path: Path) -> None:
    unset = [source for kind, source in cells(path) if kind == "code" and source.endswith(" = None")]
    checks = [source for kind, source in cells(path) if "teaching.check(" in source]
    asked = [text for text in map(texts, outputs(path)) if "**Your turn.**" in text]
    assert len(unset) == len(checks) == len(asked) >= 1


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_knows_the_one_address_of_the_project(path: Path) -> None:
    address = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    (_, title), (_, install), *_ = cells(path)
    place = f"{address.removeprefix('https://github.com/')}/blob/main/notebooks/{path.name}"
    assert f"https://colab.research.google.com/github/{place}" in title
    assert f'"flash-ladder @ git+{address}"' in install
