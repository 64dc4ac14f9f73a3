"""The table of wrong rungs: each is judged once, and a name that no rung has is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from rungs import named

from tools.measure import judge_wrong_rungs
from tools.measure.judge_wrong_rungs import WrongRung, main


def test_rungs_are_judged_once_and_one_that_is_not_found_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rungs = [
        WrongRung(name, named("v5"), "a", "b", "check", says) for name, says in (("x", "race"), ("y", ""))
    ]
    judged: list[str] = []

    def findings(rung: WrongRung, stage: object) -> list[str]:
        judged.append(rung.name)
        return ["copy not waited for: reads\n16 bytes"]

    monkeypatch.setattr(judge_wrong_rungs, "wrong_rungs", lambda: rungs)
    monkeypatch.setattr(WrongRung, "write", lambda rung, folder: None)
    monkeypatch.setattr(WrongRung, "findings", findings)
    table = tmp_path / "wrong_rungs.csv"
    assert main(["y", "--csv", str(table)]) == 0
    assert main(["--csv", str(table)]) == 1 and judged == ["y", "x"]
    rows = judge_wrong_rungs.read(table)
    assert [row["outcome"] for row in rows.values()] == ["not found", "found"] and [*rows] == ["x", "y"]
    assert rows["y"]["says"] == "copy not waited for: reads"
    with pytest.raises(SystemExit):
        main(["z", "--csv", str(table)])


def test_what_is_said_names_no_place_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []
    rung = WrongRung("x", named("v5"), "a", "b", "check")
    monkeypatch.setattr(WrongRung, "write", lambda rung, folder: folders.append(folder))
    header = judge_wrong_rungs.ROOT / "stages" / "include" / "tiles" / "barrier.h"
    monkeypatch.setattr(
        WrongRung, "findings", lambda rung, stage: [f"at {header}:45 (from {folders[0]}/x:1)"]
    )
    assert judge_wrong_rungs.judge(rung)["says"] == "at stages/include/tiles/barrier.h:45 (from x:1)"
