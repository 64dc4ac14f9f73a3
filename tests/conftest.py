"""Fixtures for all tests; and user stages: ``naive``, and those that a test drops beside it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

# Each run of the tests draws the same examples.
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")
# A shell that runs the tests in the background makes its children ignore SIGINT, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FOLDER = Path(__file__).parent / "data" / "stages"


class StageDropper:
    """Creates stages where the ladder finds them, by default copies of ``naive``."""

    kernel = (FOLDER / "naive" / "kernel.cu").read_text()
    toml = (FOLDER / "naive" / "stage.toml").read_text()

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str, kernel: str = kernel, toml: str = toml) -> Path:
        """Creates a stage folder of that name."""
        stage = self._folder / name
        stage.mkdir()
        (stage / "kernel.cu").write_text(kernel)
        (stage / "stage.toml").write_text(toml)
        return stage


@pytest.fixture
def naive(monkeypatch):
    """The folder of the stage ``naive``, made visible to the ladder."""
    monkeypatch.setenv("LADDER_STAGES", str(FOLDER))
    return FOLDER / "naive"


@pytest.fixture
def drop_stage(tmp_path, naive, monkeypatch):
    folder = tmp_path / "stages"
    folder.mkdir()
    monkeypatch.setenv("LADDER_STAGES", f"{FOLDER}{os.pathsep}{folder}")
    return StageDropper(folder)
