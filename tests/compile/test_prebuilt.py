"""Extensions that a wheel brings along: found if they fit exactly, and then no compiler is needed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ladder.common import cache
from ladder.compile import EmulatorTarget, build, prebuilt, toolchain
from ladder.errors import ToolchainError
from ladder.operations import Problem
from ladder.run.evaluation import evaluate
from ladder.stages import Stage, discover

TARGET = EmulatorTarget("sm_80")


class Wheel:
    """A package folder with one rung, installed at different places."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        for name in prebuilt._CHOICES:
            monkeypatch.delenv(name, raising=False)

    def install(self, package: Path, source: Path) -> Stage:
        """Installs a copy of ``source`` and looks for prebuilt extensions there; returns the rung."""
        shutil.copytree(source, package)
        self._monkeypatch.setattr(prebuilt, "_PACKAGE", package)
        self._monkeypatch.setattr(prebuilt, "_FOLDER", package / "_prebuilt")
        self._monkeypatch.setenv("LADDER_STAGES", str(package / "_stages"))
        return discover()["naive"]


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> Wheel:
    return Wheel(monkeypatch)


@pytest.fixture
def source(naive: Path, tmp_path: Path) -> Path:
    shutil.copytree(naive, tmp_path / "source" / "_stages" / "naive")
    return tmp_path / "source"


def test_a_shipped_rung_needs_no_compiler(wheel, source, tmp_path, monkeypatch) -> None:
    there = tmp_path / ("a long way" * 9) / "ladder"
    stage = wheel.install(there, source)
    (there / "_prebuilt").mkdir()
    made = build(stage, TARGET)
    prebuilt.pack(made, there / "_prebuilt" / prebuilt.archive_name(stage, TARGET, {}))

    here = tmp_path / "here"
    stage = wheel.install(here, there)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = Problem(1, 2, 20, 9, 32, kv_heads=1, is_causal=True)
    result = evaluate("naive", problem, backend="emulator")
    assert result.passed and result.row["global_sectors_ld"] > 0, result.text
    [extension] = cache.root().glob(f"build/*/{made.name}")
    code = extension.read_bytes()
    assert len(code) == made.stat().st_size
    assert f'"{stage.kernel}"'.encode() in code and f'"{there}'.encode() not in code

    # A compiler of the user's choice is asked instead, and so is g++ for sources that have changed.
    monkeypatch.setenv("LADDER_NVCC", str(tmp_path / "nvcc"))
    assert prebuilt.archive(stage, TARGET, {}) is None
    monkeypatch.delenv("LADDER_NVCC")
    stage.kernel.write_text(stage.kernel.read_text() + "\n")
    monkeypatch.setattr(toolchain, "_fetch", lambda: pytest.fail("fetches nvcc, which is of no use"))
    with pytest.raises(ToolchainError, match="g\\+\\+ is not there") as caught:
        build(stage, TARGET)
    assert "apt-get install g++" in caught.value.hint


def test_a_longer_path_does_not_fit(wheel, source, tmp_path) -> None:
    stage = wheel.install(tmp_path / "short", source)
    (stage.path / prebuilt.EXTENSION).write_bytes(b"")
    prebuilt.pack(stage.path / prebuilt.EXTENSION, tmp_path / "archive")
    assert prebuilt.unpack(tmp_path / "archive", tmp_path)
    wheel.install(tmp_path / "a-longer-one", source)
    assert not prebuilt.unpack(tmp_path / "archive", tmp_path)


def test_what_an_extension_is_made_from_is_in_its_name(wheel, source, tmp_path, monkeypatch) -> None:
    stage = wheel.install(tmp_path / "package", source)
    names = [prebuilt.archive_name(stage, TARGET, {})]
    copy = replace(stage, path=source / "_stages" / "naive")
    (copy.path / "README.md").write_text("no source")
    assert prebuilt.archive_name(copy, TARGET, {}) == names[0]

    names.append(prebuilt.archive_name(stage, EmulatorTarget("sm_90"), {}))
    names.append(prebuilt.archive_name(stage, TARGET, {"KEYS": 32}))
    names.append(prebuilt.archive_name(stage, TARGET, {"KEYS": 64}))
    (copy.path / "more.h").write_text("// new")
    names.append(prebuilt.archive_name(copy, TARGET, {}))
    (copy.path / "more.h").write_text("// changed")
    names.append(prebuilt.archive_name(copy, TARGET, {}))
    monkeypatch.setattr(toolchain, "REQUIREMENT", "cuda-toolkit==13.1")
    names.append(prebuilt.archive_name(stage, TARGET, {}))
    assert len(set(names)) == len(names)


def test_shared_headers_are_in_the_name(wheel, source, tmp_path, monkeypatch) -> None:
    stage = wheel.install(tmp_path / "package", source)
    monkeypatch.setattr(prebuilt, "include_directory", lambda: tmp_path / "include")
    (tmp_path / "include").mkdir()
    names = set()
    for text in ("a", "b"):
        (tmp_path / "include" / "shared.h").write_text(text)
        names.add(prebuilt.archive_name(stage, TARGET, {}))
    assert len(names) == 2


def test_other_rungs_are_compiled(wheel, source, tmp_path) -> None:
    stage = wheel.install(tmp_path / "package", source)
    (tmp_path / "package" / "_prebuilt").mkdir()
    archive = tmp_path / "package" / "_prebuilt" / prebuilt.archive_name(stage, TARGET, {})
    assert prebuilt.archive(stage, TARGET, {}) is None
    archive.write_bytes(b"")
    assert prebuilt.archive(stage, TARGET, {}) == archive
    own = replace(stage, path=source / "_stages" / "naive")
    assert prebuilt.archive(own, TARGET, {}) is None
