"""What holds for all live pages: their words, their widths, and what they are built from."""

from __future__ import annotations

import html
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from browser import Browser
from live_page import open_page, press, text_of
from rungs import named

from tools.pages import live_pages, site

ROOT = Path(__file__).parents[2]


def test_all_words_of_the_live_pages_are_translated() -> None:
    """Each text between tags, except code and what a rung says of itself, with its own fields alone."""
    words = json.loads((ROOT / "docs" / "live" / "zh-CN.json").read_text(encoding="utf-8"))
    for template in ("page.html", "banks.html", "exercises.html"):
        page = (ROOT / "docs" / "live" / template).read_text(encoding="utf-8")
        page = re.sub(r"<(script|code|style|nav|textarea)\b.*?</\1>", "<>", page, flags=re.DOTALL)
        for text in re.findall(r">([^<]+)<", page):
            said = " ".join(html.unescape(text).split())
            number = itertools.count()
            said = re.sub(r"(?<![\w.])\d+", lambda _, n=number: f"{{{next(n)}}}", said)
            if "$" not in said and re.search(r"[a-z]{3}", said) and said not in ("min", "max", "abs", "int"):
                assert words.get(said), said
    for english, chinese in words.items():
        field = re.compile(r"\{\d+\}")
        assert set(field.findall(chinese)) <= set(field.findall(english)), english


@pytest.mark.full
def test_findings_and_verdicts_speak_chinese(browser: Browser, address: str) -> None:
    open_page(browser, f"{address}/zh_CN", named("v1"))
    press(browser, "run", size=64, mask="none", program=1, check=True)
    browser.wait_for("document.getElementById('findings').textContent.includes('第')")
    findings = text_of(browser, "findings")
    assert not re.search(r"race|reads|writes|barrier", findings), findings
    open_page(browser, f"{address}/zh_CN", "exercise_cuda_transpose")
    press(browser, "answer")
    browser.wait_for("document.getElementById('verdict').textContent.includes('不对')")
    verdict = text_of(browser, "verdict")
    assert not re.search(r"right, but|at most|What counts", verdict), verdict
    browser.wait_for("document.getElementById('task').textContent.includes('共享内存')")
    # The table of steps keeps its style.
    browser.set_width(390)
    press(browser, "step")
    assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.full
@pytest.mark.parametrize("page", ["exercises", "exercise_v1_kernel", "exercise_cuda_map", "gemm"])
def test_the_new_pages_fit_a_phone(browser: Browser, address: str, page: str) -> None:
    for width in (390, 1280):
        browser.set_width(width)
        browser.open(f"{address}/{page}.html")
        browser.wait_for("document.readyState === 'complete' && document.querySelectorAll('nav').length")
        assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.full
def test_the_editor_fits_a_phone_and_needs_its_server(browser: Browser, compiling: str, address: str) -> None:
    for width in (390, 1280):
        browser.set_width(width)
        open_page(browser, compiling, named("v1"))
        assert browser.value("document.getElementById('source').offsetWidth") > 0.8 * min(width, 1200)
        assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")
    open_page(browser, address, named("v1"))
    assert browser.value("document.getElementById('editor').hidden")
    open_page(browser, address, "exercise_v1_rescale")
    assert browser.value("document.getElementById('editor').hidden")


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
@pytest.mark.parametrize("name", ["page", "host", "banks"])
def test_the_emulator_s_entry_points_for_pages_fit_its_headers(tmp_path: Path, name: str) -> None:
    """Without emscripten nothing else compiles them."""
    (tmp_path / "emscripten.h").write_text(
        "#define EMSCRIPTEN_KEEPALIVE\n"
        '#define EM_JS(type, name, arguments, ...) extern "C" type name arguments\n'
    )
    emulator = ROOT / "emulator"
    command = ["g++", "-fsyntax-only", "-std=c++20", "-I", str(tmp_path), "-I", str(emulator)]
    done = subprocess.run([*command, str(emulator / "wasm" / f"{name}.cpp")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_emscripten_builds_the_emulator_for_pages(tmp_path: Path) -> None:
    if not shutil.which("emcmake"):
        pytest.skip("there is no emscripten")
    for target in ("emulator", "bank_model"):
        live_pages.build_wasm(target, tmp_path)
        assert (tmp_path / f"{target}.js").is_file()


@pytest.mark.parametrize("emcmake", [None, "echo the compiler stops; exit 1"])
def test_a_site_is_finished_without_its_live_pages(
    emcmake: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where emscripten is missing, and where it fails. Pages of an earlier build do not stay."""
    monkeypatch.setenv("PATH", str(tmp_path))
    if emcmake:
        (tmp_path / "emcmake").write_text(f"#!/bin/sh\n{emcmake}\n")
        (tmp_path / "emcmake").chmod(0o755)
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "banks.html").write_text("an old page")
    site.write_live_pages(tmp_path / "live")
    assert ("the compiler stops" if emcmake else "apt-get install emscripten") in capsys.readouterr().out
    assert not (tmp_path / "live").exists()
