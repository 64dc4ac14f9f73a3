"""Packages under the names that users know, and under those of earlier versions."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import pytest

from ladder import moved

ALL = {**moved.DOCUMENTED, **moved.EARLIER}


@pytest.mark.parametrize("name", ALL)
def test_a_package_is_one_object_under_both_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, name, raising=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = importlib.import_module(name)
    assert found is importlib.import_module(ALL[name])
    assert found.__name__ == found.__spec__.name == ALL[name]
    said = [str(one.message) for one in caught if one.category is FutureWarning]
    assert said == ([f"{name} is now {ALL[name]}"] if name in moved.EARLIER else [])


def test_modules_of_a_package_are_one_object_too() -> None:
    old = importlib.import_module("ladder.emulator.findings")
    assert old is importlib.import_module("ladder.run.emulator.findings")


def test_a_program_runs_under_the_name_that_users_know() -> None:
    done = subprocess.run([sys.executable, "-m", "ladder.torch", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "usage" in done.stdout.lower(), done.stderr


def test_other_names_are_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"ladder\.nothing"):
        importlib.import_module("ladder.nothing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ladder.emulator.nothing")
    before = [*sys.meta_path]
    moved.install()
    assert sys.meta_path == before
