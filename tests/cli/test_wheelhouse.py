"""``ladder wheelhouse``: a folder of wheels for machines without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from ladder.cli import main, wheelhouse
from ladder.compile import toolchain


@pytest.fixture
def index(tmp_path: Path, monkeypatch) -> Path:
    """The only index that pip can use, with one empty package."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "nothing-1.0-py3-none-any.whl", "w") as wheel:
        info = "nothing-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(wheelhouse, "installed", lambda: ["nothing==1.0"])
    monkeypatch.setattr(toolchain, "REQUIREMENT", "nothing==1.0")
    return folder


def test_what_is_installed_here() -> None:
    names = [requirement.partition("==")[0].lower() for requirement in wheelhouse.installed()]
    assert {"torch", "numpy", "pybind11", "pytest"} <= set(names)
    assert not {"pip", "flash-ladder"} & set(names)


def test_wheels_come_into_the_folder(index: Path, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "with blanks"
    assert main(["wheelhouse", str(folder)]) == 0
    assert [path.name for path in folder.iterdir()] == ["nothing-1.0-py3-none-any.whl"]
    out = capsys.readouterr().out
    assert "1 wheels" in out and f"WHEELHOUSE='{folder}'" in out


def test_what_pip_cannot_find_is_named(index: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(toolchain, "REQUIREMENT", "compiler==13.0.*")
    assert main(["wheelhouse", str(tmp_path / "wheels")]) == 2
    err = capsys.readouterr().err
    assert "compiler==13.0.*" in err and "Traceback" not in err


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").touch()
    assert main(["wheelhouse", str(tmp_path / "file" / "wheels")]) == 2
    assert "cannot make" in capsys.readouterr().err
