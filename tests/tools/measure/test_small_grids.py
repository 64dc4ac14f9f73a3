"""The problems on which the choice of rungs is tuned do not change."""

from __future__ import annotations

import hashlib

from ladder.stages import discover
from tools.measure.small_grids import RUNGS, drawn, small


def test_the_drawn_problems_are_those_of_the_seed() -> None:
    problems = drawn()
    text = "\n".join(problem.text for problem in problems)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "226b736cfd0b7344"
    assert len(problems) == 100 and drawn(seed=1) != problems
    assert min(p.q_len for p in problems) < 8 and max(p.q_len for p in problems) > 8192
    assert {p.head_dim for p in problems} == {64, 128, 256}


def test_all_rungs_take_all_problems() -> None:
    ladder = discover()
    assert all(ladder[name].suits(problem) for name in RUNGS for problem in (*small(), *drawn()))
