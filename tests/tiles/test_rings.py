"""Rings, TMA, roles and turns: a program that uses all of them, on the emulator and under its sanitizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.cli import main
from ladder.stages import include_directory

PROGRAM = Path(__file__).with_name("rings.cu")


@pytest.mark.parametrize("check", [pytest.param(False, marks=pytest.mark.full), True], ids=["run", "checked"])
def test_tiles_go_through_a_ring(check: bool, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--check"] if check else []
    flags = f"--nvcc-flags=-I{include_directory()}"
    assert main(["emulate", str(PROGRAM), "--arch", "sm_90a", flags, *options]) == 0
    assert "ok\n" in capfd.readouterr().out
