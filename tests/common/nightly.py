"""Which tests of rungs are left to the nightly run, ``make test-all``.

``pytest`` and ``make test`` run the whole matrix of the first rungs and of each operation's last one, and one
kernel of every other. Run as a program, this builds the rungs of which every kernel is needed, so that their
tests, the lessons and the comparisons compile none of them again for a single problem.
"""

from __future__ import annotations

from functools import cache

from ladder.compile import build_all
from ladder.run.backends import get_backend
from ladder.stages import Stage, discover, root

#: Rungs of which every run also has the lesson and the comparison with a GPU's counters.
FIRST = frozenset({"v1_minimal", "v1b_fa2_loops", "v2_warp_mma", "v3_swizzle", "v4_tk_tiles"})
#: Operations of which a whole rung takes a minute to compile.
SLOW_TO_COMPILE = ("hstu_backward",)
#: The tests in stages/ that need all kernels of a rung.
OF_ALL_KERNELS = ("test_matrix.py", "test_shared_claims.py")


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
    """The stages whose every kernel each run tests: of the ladders the first ones, and of each operation the
    last one that has been timed and is no variant; and all stages from other folders.
    """
    ladders = [stage for stage in discover() if stage.path.is_relative_to(root())]
    last = {stage.computes: stage.name for stage in ladders if stage.timed and not stage.is_variant}
    others = {stage.name for stage in discover()} - {stage.name for stage in ladders}
    return FIRST | others | {name for computes, name in last.items() if computes not in SLOW_TO_COMPILE}


def is_nightly(rung: Stage, file: str, test: str) -> bool:
    """Whether a test in stages/ is left to the nightly run. Of rungs that are not run whole, one kernel on
    the matrix stays, unless another rung continues one that is slow to compile. A rung's own tests stay if no
    other continues it, and those of the first rungs.
    """
    is_continued = rung.name in continued_rungs() - FIRST
    if test == "test_one_kernel":
        return rung.name in whole_rungs() or (is_continued and rung.computes in SLOW_TO_COMPILE)
    if file in OF_ALL_KERNELS:
        return rung.name not in whole_rungs()
    return is_continued


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
