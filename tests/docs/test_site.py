"""Builds the site of a few small texts; the tools are in the extra ``site``."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an English site with the Chinese one of the same texts below it."""
    for name in ("furo", "myst_nb", "latex2mathml"):
        pytest.importorskip(name)
    texts, target = tmp_path_factory.mktemp("texts"), tmp_path_factory.mktemp("site")
    (texts / "notebooks").mkdir()
    (texts / "stages" / "v1_minimal").mkdir(parents=True)
    (texts / "README.md").write_text(
        "# Home\n\n[English](README.md) · [中文](README.zh-CN.md)\n\nA sum $\\sum_j s_j - m'$ and "
        "![a badge](https://example.org/badge.svg), [the lesson](notebooks/01_lesson.ipynb).\n"
    )
    (texts / "stages" / "v1_minimal" / "README.md").write_text("# A rung\n\nIts *pangolin* story.\n")
    output = new_output("stream", text="what came out")
    cells = [new_markdown_cell("# A lesson"), new_code_cell("print(1)", outputs=[output])]
    nbformat.write(new_notebook(cells=cells), texts / "notebooks" / "01_lesson.ipynb")
    module = _module(DOCS / "site.py")
    module.run_sphinx(texts, target, "en")
    module.run_sphinx(texts, target / "zh_CN", "zh_CN")
    return target


def _module(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_home_is_the_readme_with_the_contents(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "<math" in home and "A lesson" in home and "A rung" in home
    assert "\u2032" in html.unescape(home) and "<msup>" not in home  # a prime is as tall as its letter
    assert "a badge" in home and "README.zh-CN" not in home
    assert 'href="zh_CN/README.html"' in home


def test_nothing_comes_from_a_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'(src="|<link[^>]* href=")(https?:)?//', text), page
    assert not re.search(r"url\((https?:)?//", (site / "_static" / "styles" / "furo.css").read_text())


def test_lessons_have_outputs_and_rungs_their_sources(site: Path) -> None:
    assert "what came out" in (site / "notebooks" / "01_lesson.html").read_text(encoding="utf-8")
    for language, up in (("", "../../"), ("zh_CN", "../../../")):
        rung = (site / language / "stages" / "v1_minimal" / "README.html").read_text(encoding="utf-8")
        assert f"href='{up}lines/v1_minimal.html'" in rung
    assert "pangolin" in (site / "searchindex.js").read_text(encoding="utf-8")


def test_what_is_not_translated_says_so(site: Path) -> None:
    lesson = (site / "zh_CN" / "notebooks" / "01_lesson.html").read_text(encoding="utf-8")
    assert "尚未翻译" in lesson and 'href="../../notebooks/01_lesson.html"' in lesson
    home = (site / "zh_CN" / "README.html").read_text(encoding="utf-8")
    assert "尚未翻译" not in home and "课程" in home
