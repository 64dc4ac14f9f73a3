"""The steps of a block's roles, from the marks that copies of the rungs leave."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from rungs import named

from tools.measure.measure_timeline import BEGUN, LOAD, O_READY, P_READY, S_READY, STEPS, steps, timeline

ROOT = Path(__file__).parents[3]


def test_steps_reach_from_mark_to_mark() -> None:
    marks = [BEGUN, S_READY, O_READY, P_READY, BEGUN, S_READY]
    made = pd.DataFrame({"role": 0, "mark": marks, "time": [1, 3, 4, 7, 8, 9]})
    made.loc[len(made)] = [4, LOAD, 2]
    found = steps(made, named("v10b"))
    # Neither the second products nor the second softmax has an end.
    assert [tuple(row) for row in found.itertuples(index=False)] == [
        (named("v10b"), 0, "products", 1, 4),
        (named("v10b"), 0, "softmax", 3, 7),
        (named("v10b"), 4, "load", 2, 2),
    ]


@pytest.mark.full
def test_the_emulators_order_is_the_recorded_one() -> None:
    recorded = pd.read_csv(ROOT / "results" / "timeline_emulator.csv")
    made = pd.concat([timeline(stage, "emulator") for stage in STEPS], ignore_index=True)
    pd.testing.assert_frame_equal(made, recorded)
