"""A rung's number names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.errors import EarlierName, StageError
from ladder.stages import discover
from ladder.stages.renamed import OTHER_NAMES

OWN = [stage for stage in discover() if stage.is_own]


def test_a_number_names_the_projects_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [stage.number for stage in OWN]
    assert [discover()[number].name for number in numbers] == [stage.name for stage in OWN]
    assert discover().today("v3b") == discover()["v3b"].name != discover().today("v3")
    with pytest.raises(StageError, match="there is no stage 'v99'"):
        discover()["v99"]
    # A reader's own rung of that name is the one that is meant, and theirs of the same number is not.
    (tmp_path / "v3").mkdir()
    (tmp_path / "v4_mine").mkdir()
    for name in ("v3", "v4_mine"):
        (tmp_path / name / "kernel.cu").write_text(discover()["v1"].kernel.read_text())
        (tmp_path / name / "stage.toml").write_text((discover()["v1"].path / "stage.toml").read_text())
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    assert discover()["v3"].name == "v3" and not discover()["v4"].name.endswith("mine")


def test_a_renamed_rungs_name_is_an_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    today = discover()["v5"].name
    monkeypatch.setitem(OTHER_NAMES, "v5z_called", today)
    with pytest.warns(EarlierName, match=f"v5z_called is part of {today} today"):
        assert discover()["v5z_called"].name == today
