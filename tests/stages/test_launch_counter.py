"""The counter of a launch, from which blocks take numbers: launches of a stream share it, streams do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.cli import main
from ladder.stages import include_directory

PROGRAM = Path(__file__).with_name("launch_counter.cu")


@pytest.mark.parametrize("check", [False, True], ids=["run", "checked"])
def test_every_launch_takes_every_number_once(check: bool, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--check"] if check else []
    assert main(["emulate", str(PROGRAM), f"--nvcc-flags=-I{include_directory()}", *options]) == 0
    assert "ok\n" in capfd.readouterr().out
