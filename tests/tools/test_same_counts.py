"""tools/same_counts.py: counts before and after a change of the rungs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rungs import named

from ladder.stages import FOLDED
from tools import same_counts


def row(stage: str, instructions: int, **others: Any) -> dict[str, Any]:
    problem = {"B": 1, "M": 64, "d": 64, "causal": False}
    return {"stage": stage, **problem, "wgmma_instructions": instructions, "error": 0.1, **others}


def test_a_folded_rung_is_compared_with_the_one_that_has_its_kernel() -> None:
    before = [row(named("v7"), 1), row("v7b_large_tiles", 2), row(named("v8"), 3)]
    assert FOLDED["v7b_large_tiles"] == named("v7")
    assert same_counts.differences(before, [row(named("v7"), 2, error=0.2), row(named("v8"), 3)]) == []
    [line] = same_counts.differences(before, [row(named("v7"), 1), row(named("v8"), 3)])
    assert line == f"{named('v7')}, B=1 M=64 causal=False d=64: wgmma_instructions was 2, is 1"


def test_a_row_that_is_missing_is_a_difference() -> None:
    before = [row(named("v8"), 3), row(named("v8"), 4, causal=True)]
    [line] = same_counts.differences(before, [row(named("v8"), 3)])
    assert line.endswith("no such row any more")


def test_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).write_text(json.dumps([row(named("v8"), count)]))
    for after, code in (("b", 0), ("c", 1), ("nowhere", 2)):
        monkeypatch.setattr(sys, "argv", ["same_counts", str(tmp_path / "a"), str(tmp_path / after)])
        assert same_counts.main() == code
    assert "1 rows: all counts are equal" in capsys.readouterr().out
