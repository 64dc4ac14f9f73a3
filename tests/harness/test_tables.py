"""The tables and pictures of README and lessons are what the data and the emulator say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_tables_are_what_their_data_says() -> None:
    command = [sys.executable, str(ROOT / "results" / "tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pictures_are_drawn_from_their_data() -> None:
    command = [sys.executable, str(ROOT / "results" / "pictures.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_picture_of_other_data_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "results"))
    import pictures

    monkeypatch.setattr(pictures, "PICTURES", tmp_path / "pictures")
    for name, picture in pictures.ALL.items():
        assert pictures.is_stale(name)
        pictures.write(name)
        assert not pictures.is_stale(name)
        first = pictures.path(name).read_bytes()
        pictures.write(name)
        assert pictures.path(name).read_bytes() == first
        data = picture.data()
        data.loc[data.index[-1], "tflops"] *= 1.01
        other = pictures.Picture(lambda data=data: data, picture.draw)
        monkeypatch.setitem(pictures.ALL, name, other)
        assert pictures.is_stale(name)
