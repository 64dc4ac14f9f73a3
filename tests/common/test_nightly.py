"""``pytest`` runs every rung: on the whole matrix, or one of its kernels."""

from __future__ import annotations

from nightly import SLOW_TO_COMPILE, is_nightly, last_rungs, whole_rungs
from rungs import named

from ladder.stages import discover


def test_every_rung_is_run_either_whole_or_with_one_kernel() -> None:
    for stage in discover():
        tests = {test for test in ("test_matrix", "test_one_kernel") if not is_nightly(stage, test)}
        if stage.name in whole_rungs():
            assert tests == {"test_matrix"}, stage.name
        elif stage.computes in SLOW_TO_COMPILE and stage.name not in last_rungs().values():
            assert tests == set(), stage.name
        else:
            assert tests == {"test_one_kernel"}, stage.name


def test_the_last_rungs_are_run_whole() -> None:
    last = {named("v12c"), named("b5g"), named("d5"), named("h7"), "layer_norm"}
    assert last <= whole_rungs()
    assert named("h8") in last_rungs().values()
