"""What an arrangement of h4 costs is what the formulas say: in the kept counts, and counted anew."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def arrangements(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "results"))
    import count_arrangements

    return count_arrangements


def test_what_was_counted_is_what_is_predicted(arrangements: ModuleType) -> None:
    counted = pd.read_csv(ROOT / "results" / "hstu_arrangements.csv").to_dict("records")
    assert len(counted) == len(arrangements.ARRANGEMENTS) == 7
    for arrangement, row in zip(arrangements.ARRANGEMENTS, counted, strict=True):
        predicted = arrangements.predicted(arrangement)
        assert {name: row[name] for name in predicted} == predicted, arrangement.title
        assert {name: str(int(row[name.lower()])) for name in arrangement.options} == arrangement.options


@pytest.mark.full
def test_counted_anew(arrangements: ModuleType) -> None:
    with arrangements.of_one_head_dim() as stage:
        for arrangement in arrangements.ARRANGEMENTS:
            assert arrangements.counted(arrangement, stage) == arrangements.predicted(arrangement)
