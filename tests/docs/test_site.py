"""Builds the site of a few small texts; the tools are in the extra ``site``."""

from __future__ import annotations

import html
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from rungs import named

from ladder.course.lessons.predictions import PREDICT_FIRST
from ladder.course.lessons.questions import QUESTIONS
from ladder.stages import Stage, discover
from tools.pages import quizzes
from tools.pages import site as module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an English site with the Chinese one of the same texts below it."""
    for name in ("furo", "myst_nb", "latex2mathml"):
        pytest.importorskip(name)
    texts, target = tmp_path_factory.mktemp("texts"), tmp_path_factory.mktemp("site")
    (texts / "notebooks").mkdir()
    (texts / "stages" / named("v1")).mkdir(parents=True)
    (texts / "docs").mkdir()
    (texts / "docs" / "commands.md").write_text("# Commands\n\nThe first one.\n")
    (texts / "README.md").write_text(
        "# Home\n\n[English](README.md) · [中文](README.zh-CN.md)\n\nA sum $\\sum_j s_j - m'$ and "
        "![a badge](https://example.org/badge.svg), [the lesson](notebooks/01_lesson.ipynb).\n"
    )
    (texts / "stages" / named("v1") / "README.md").write_text("# A rung\n\nIts *pangolin* story.\n")
    output = new_output("stream", text="what came out")
    svg = "<svg xmlns='http://www.w3.org/2000/svg'><title>Two cells &amp; an arrow</title></svg>"
    drawing = new_output("display_data", {"image/svg+xml": svg})
    asked = new_output("display_data", {"text/markdown": "**Your turn.** Write your number"})
    hidden = new_output("display_data", {"text/markdown": PREDICT_FIRST})
    cells = [
        new_markdown_cell("# A lesson"),
        new_code_cell("print(1)", outputs=[output, drawing]),
        new_code_cell('n = None\nlessons.predict("threads_without_element", n)', outputs=[asked]),
        new_code_cell('lessons.after("threads_without_element", lambda: table)', outputs=[hidden]),
        new_code_cell("%exercise v1_rescale"),
        new_code_cell("%exercise b2_pair"),
    ]
    nbformat.write(new_notebook(cells=cells), texts / "notebooks" / "01_lesson.ipynb")
    (target / "live").mkdir()
    (texts / "notebooks" / "README.md").write_text("# Lessons\n")
    (texts / "examples").mkdir()
    (texts / "examples" / "README.md").write_text("# Examples\n")
    for page in (named("v1"), "banks", "exercise_v1_rescale", "exercises", "gemm"):
        (target / "live" / f"{page}.html").write_text("a page")
    module.run_sphinx(texts, target, "en")
    module.run_sphinx(texts, target / "zh_CN", "zh_CN")
    return target


def test_home_is_the_readme_with_the_contents(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "<math" in home and "A lesson" in home and "A rung" in home
    assert "\u2032" in html.unescape(home) and "<msup>" not in home  # a prime is as tall as its letter
    assert "a badge" in home and "README.zh-CN" not in home
    assert 'href="zh_CN/README.html"' in home


def test_a_drawing_is_also_told_in_words(site: Path) -> None:
    lesson = (site / "notebooks" / "01_lesson.html").read_text(encoding="utf-8")
    assert 'alt="Two cells &amp; an arrow"' in lesson


def test_a_prediction_unfolds(site: Path) -> None:
    lesson = (site / "notebooks" / "01_lesson.html").read_text(encoding="utf-8")
    question = QUESTIONS["threads_without_element"]
    hint, answer = re.findall(r'<details class="quiz"><summary>(.*?)</details>', lesson)
    assert hint == f"Hint</summary>{question.hint}"
    assert answer == f"Answer</summary><b>24</b>. {question.because}"
    assert "Your turn" not in lesson and "lessons.predict(" not in lesson
    assert "Predict first" not in lesson and "Run this lesson to see the measurement." in lesson
    chinese = (site / "zh_CN" / "notebooks" / "01_lesson.html").read_text(encoding="utf-8")
    assert "<summary>提示</summary>" in chinese and "运行本课即可看到测量结果。" in chinese
    assert "<b>24</b>. 8 个 block" in chinese and question.hint not in chinese


def test_predictions_of_a_translated_lesson_unfold() -> None:
    question = QUESTIONS["threads_without_element"]
    words = {PREDICT_FIRST: "先预测。", question.hint: "想一想。", question.because: "因为。"}
    hidden = new_output("display_data", {"text/markdown": words[PREDICT_FIRST]})
    cells = [
        new_code_cell('lessons.predict("threads_without_element", n)'),
        new_code_cell('lessons.after("threads_without_element", lambda: table)', outputs=[hidden]),
    ]
    notebook = new_notebook(cells=cells)
    quizzes.unfold_predictions(notebook, "提示", "答案", "未显示", lambda text: words[text])
    asked, shown = (cell.outputs[0].data for cell in notebook.cells)
    assert asked["text/html"].splitlines() == [
        '<details class="quiz"><summary>提示</summary>想一想。</details>',
        '<details class="quiz"><summary>答案</summary><b>24</b>. 因为。</details>',
    ]
    assert shown == {"text/markdown": "未显示"}


def test_nothing_comes_from_a_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'(src="|<link[^>]* href=")(https?:)?//', text), page
    assert not re.search(r"url\((https?:)?//", (site / "_static" / "styles" / "furo.css").read_text())


def test_lessons_have_outputs_and_rungs_their_sources(site: Path) -> None:
    assert "what came out" in (site / "notebooks" / "01_lesson.html").read_text(encoding="utf-8")
    for language, up in (("", "../../"), ("zh_CN", "../../../")):
        rung = (site / language / "stages" / named("v1") / "README.html").read_text(encoding="utf-8")
        assert f"href='{up}lines/{named('v1')}.html'" in rung
        live = f"live/{language}".rstrip("/")
        assert f"href='{up}{live}/{named('v1')}.html'" in rung
        commands = (site / language / "docs" / "commands.html").read_text(encoding="utf-8")
        assert f"href='{up.removeprefix('../')}{live}/banks.html'" in commands
        lesson = (site / language / "notebooks" / "01_lesson.html").read_text(encoding="utf-8")
        assert (
            lesson.count(f"{live}/") == 1
            and f"href='{up.removeprefix('../')}{live}/exercise_v1_rescale.html'" in lesson
        )
        for page, name in (("notebooks", "exercises"), ("examples", "gemm")):
            text = (site / language / page / "README.html").read_text(encoding="utf-8")
            assert f"href='{up.removeprefix('../')}{live}/{name}.html'" in text
    assert "pangolin" in (site / "searchindex.js").read_text(encoding="utf-8")


def test_what_is_not_translated_says_so(site: Path) -> None:
    lesson = (site / "zh_CN" / "notebooks" / "01_lesson.html").read_text(encoding="utf-8")
    assert "尚未翻译" in lesson and 'href="../../notebooks/01_lesson.html"' in lesson
    home = (site / "zh_CN" / "README.html").read_text(encoding="utf-8")
    assert "尚未翻译" not in home and "课程" in home


def test_a_site_without_live_pages_says_so(tmp_path: Path) -> None:
    for name in ("furo", "myst_nb"):
        pytest.importorskip(name)
    (tmp_path / "texts" / "docs").mkdir(parents=True)
    (tmp_path / "texts" / "docs" / "live.md").write_text("# Live pages\n\nOf accesses.\n")
    (tmp_path / "texts" / "README.md").write_text("# Home\n")
    for language, sentence in (("en", "without the live pages"), ("zh_CN", "未包含")):
        site = tmp_path / ("site" if language == "en" else "site/zh_CN")
        module.run_sphinx(tmp_path / "texts", site, language)
        assert sentence in (site / "docs" / "live.html").read_text(encoding="utf-8")


def test_a_source_page_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are written again with the same contents change nothing; another line does."""
    stage = discover()["v1"]
    own = tmp_path / named("v1")
    shutil.copytree(stage.path, own)
    counted = []

    def evaluated(stage: Stage, problem: object, backend: str) -> SimpleNamespace:
        counted.append(stage.name)
        return SimpleNamespace(execution=SimpleNamespace(launches=()), problem=problem, row={"arch": "sm_80"})

    monkeypatch.setattr(module, "evaluate", evaluated)
    monkeypatch.setattr(module, "line_table", lambda launches: None)
    monkeypatch.setattr(module, "annotate", lambda table: None)
    monkeypatch.setattr(module, "page", lambda *_: "a page")
    for _ in range(2):
        module.write_source_pages([replace(stage, path=own)], tmp_path / "lines")
        (own / "kernel.cu").write_text((own / "kernel.cu").read_text())
    assert counted == [named("v1")] and (tmp_path / "lines" / f"{named('v1')}.html").read_text() == "a page"
    (own / "kernel.cu").write_text((own / "kernel.cu").read_text() + "// more\n")
    module.write_source_pages([replace(stage, path=own)], tmp_path / "lines")
    assert counted == 2 * [named("v1")]


@pytest.mark.full
def test_translated_texts_that_are_as_before_are_left_alone(tmp_path: Path) -> None:
    module.translated_tree("zh-CN", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    readme, extra = tmp_path / "README.md", tmp_path / "docs" / "gone.md"
    text = readme.read_text()
    readme.write_text("other")
    extra.write_text("left over")
    module.translated_tree("zh-CN", tmp_path)
    assert readme.read_text() == text and not extra.exists()
    assert all(path.stat().st_mtime_ns == before[path] for path in before if path != readme)
