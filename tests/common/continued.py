"""Tests that ``make test`` leaves to whole runs of pytest: those of rungs that others continue, and of rungs
that have not been timed.

Run as a program, it builds the stages of which ``make test`` needs every kernel, so that their tests, the
lessons and the comparisons compile none of them again for a single problem.
"""

from __future__ import annotations

from functools import cache

from ladder.compile import build_all
from ladder.run.backends import get_backend
from ladder.stages import Stage, discover

#: Rungs of which every run also has the lesson and the comparison with a GPU's counters.
FIRST = frozenset({"v1_minimal", "v1b_fa2_loops", "v2_warp_mma", "v3_swizzle", "v4_tk_tiles"})
#: Operations of which a whole rung takes a minute to compile: ``make test`` tries one kernel.
SLOW_TO_COMPILE = ("hstu_backward",)


@cache
def continued_rungs() -> frozenset[str]:
    """The project's rungs that others continue with the same needs, on no fewer dtypes and head dimensions,
    and those that have not been timed, which continue none. A variant stands beside the rung that it
    continues.
    """
    own = {stage.name: stage for stage in discover() if stage.is_own}
    found = {one.name for one in own.values() if not one.timed}
    for one in own.values():
        before = own.get(one.before or "")
        if before and one.timed and _continues(one, before):
            found.add(before.name)
    return frozenset(found)


def _continues(one: Stage, before: Stage) -> bool:
    fewer = {*before.dtypes} - {*one.dtypes} or {*before.head_dims} - {*one.head_dims}
    return not fewer and (one.needs, one.is_variant) == (before.needs, before.is_variant)


@cache
def whole_rungs() -> frozenset[str]:
    """The stages that ``make test`` runs on the whole matrix."""
    narrow = continued_rungs() - FIRST
    return frozenset(
        stage.name
        for stage in discover()
        if stage.name not in narrow and (not stage.is_own or stage.computes not in SLOW_TO_COMPILE)
    )


def is_left_out(rung: Stage, file: str, test: str) -> bool:
    """Whether ``make test`` leaves this test in stages/ to whole runs. For rungs of the project that others
    continue, except the first ones, and for rungs that have not been timed, this is all except one kernel on
    the matrix. For rungs that are slow to compile, it is the tests of the matrix that compile all their
    kernels. For the other stages, it is that one kernel, which the whole matrix has, too.
    """
    if test == "test_one_kernel":
        return rung.name in whole_rungs()
    if not rung.is_own:
        return False
    slow = file == "test_matrix.py" and rung.computes in SLOW_TO_COMPILE
    return slow or rung.name in continued_rungs() - FIRST


def build_whole_rungs() -> None:
    """Builds them for the emulator. What does not compile is left to their tests, which say so."""
    stages = [stage for stage in discover() if stage.name in whole_rungs()]
    backend = get_backend("emulator")
    build_all(
        stages,
        {stage.name: backend.target(stage, None) for stage in stages},
        {stage.name: stage.chosen_options({}) for stage in stages},
    )


if __name__ == "__main__":
    build_whole_rungs()
