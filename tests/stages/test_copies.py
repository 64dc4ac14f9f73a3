"""A copy of a rung under another name is the same to every verdict: none depends on a rung's name."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rungs import named

from ladder.stages import discover, root

REPOSITORY = Path(__file__).parents[2]
MATRIX = REPOSITORY / "stages" / "test_matrix.py"
#: What a verdict goes through.
FOLDERS = ("ladder/compile", "ladder/operations", "ladder/run", "ladder/stages", "tools/bench")


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all shipped rungs, of which there is a copy each."""
    names = shipped()
    for name in names:
        ignored = shutil.ignore_patterns("test_*", "README*", "__pycache__")
        shutil.copytree(discover()[name].path, tmp_path / copy_of(name), ignore=ignored)
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    return names


def shipped() -> list[str]:
    return [stage.name for stage in discover() if stage.is_own]


def copy_of(name: str) -> str:
    return f"copy{name}"


def pytest_of_matrix(*words: str, test: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", f"{MATRIX}{test}", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env={**os.environ})


def strings(source: str) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.value


def test_no_verdict_names_a_rung() -> None:
    names = re.compile("|".join(rf"\b{name}\b" for name in shipped()))
    files = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    named = {
        str(path): name
        for path in [*files, MATRIX, MATRIX.with_name("conftest.py")]
        if path.name != "renamed.py"  # the names in measured files
        for text in strings(path.read_text(encoding="utf-8"))
        for name in names.findall(text)
    }
    assert len(files) > 50 and named == {}


def test_a_copy_is_the_same_but_for_its_name_and_compiles_the_same_text(copies: list[str]) -> None:
    """No verdict names a rung, and a copy has the same tests. So all of them judge the same."""
    ladder = discover()
    for name in copies:
        original, copy = ladder[name], ladder[copy_of(name)]
        assert replace(copy, name=name, path=original.path) == original
        included = [
            (file.name, header)
            for file in copy.path.rglob("*")
            for header in re.findall(r'^#include "(.*)"', file.read_text(encoding="utf-8"), re.MULTILINE)
        ]
        assert any(file == "kernel.cu" for file, _ in included)
        assert [one for one in included if not copy.source(one[1]).is_file()] == []


def test_a_copy_has_the_same_tests(copies: list[str]) -> None:
    listed = pytest_of_matrix("--collect-only").stdout.splitlines()
    for name in copies:
        of_copy = [line.replace(copy_of(name), name) for line in listed if f"[{copy_of(name)}" in line]
        assert len(of_copy) > 5 and of_copy == [line for line in listed if re.search(rf"\[{name}\b", line)]


def test_a_copy_is_not_judged_by_what_a_wrong_rung_before_it_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest keeps what a failed test was reading, unfinished, while the next rung is judged."""
    texts = {file: (root() / named("v1") / file).read_text() for file in ("kernel.cu", "stage.toml")}
    in_log2 = texts["kernel.cu"].replace("logf(l_gmem[row])", "log2f(l_gmem[row])")
    assert in_log2 != texts["kernel.cu"]
    for name, kernel in (("a_wrong", in_log2), ("b_right", texts["kernel.cu"])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.cu").write_text(kernel)
        (tmp_path / name / "stage.toml").write_text(texts["stage.toml"].replace("[32, 64, 128]", "[32]"))
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    said = pytest_of_matrix("-k", "a_wrong or b_right", "-rA", test="::test_matrix").stdout
    assert re.search(r"^FAILED .*a_wrong", said, re.MULTILINE), said
    assert re.search(r"^PASSED .*b_right", said, re.MULTILINE), said
    assert "ladder run a_wrong" in said and "ladder run b_right" not in said, said


@pytest.mark.full
def test_copies_pass_everything(copies: list[str]) -> None:
    result = pytest_of_matrix("-n", "auto", "-k", " or ".join(map(copy_of, copies)))
    assert result.returncode == 0, result.stdout[-5000:]
