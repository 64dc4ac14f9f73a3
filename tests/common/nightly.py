"""Which tests of rungs are left to the nightly run, ``make test-all``.

``pytest`` and ``make test`` run the whole matrix of the first rungs and of each operation's last one, and one
kernel of every other. Run as a program, this builds the rungs of which every kernel is needed, so that their
tests, the lessons and the comparisons compile none of them again for a single problem.
"""

from __future__ import annotations

from functools import cache

from rungs import named

from ladder.compile import build_all
from ladder.run.backends import get_backend
from ladder.stages import Stage, discover, root

#: Rungs of which every run also has the lesson and the comparison with a GPU's counters.
FIRST = frozenset({named("v1"), named("v1b"), named("v2"), named("v3"), named("v4")})
#: Operations of which a whole rung takes a minute to compile, and one kernel many seconds.
SLOW_TO_COMPILE = ("hstu_backward",)


@cache
def last_rungs() -> dict[str, str]:
    """Of each operation the last rung that has been timed and is no variant."""
    ladders = [stage for stage in discover() if stage.path.is_relative_to(root())]
    return {stage.computes: stage.name for stage in ladders if stage.timed and not stage.is_variant}


@cache
def whole_rungs() -> frozenset[str]:
    """The stages whose every kernel each run tests: the first and the last ones, and all from elsewhere."""
    last = {name for computes, name in last_rungs().items() if computes not in SLOW_TO_COMPILE}
    return FIRST | last | {stage.name for stage in discover() if not stage.path.is_relative_to(root())}


def is_nightly(rung: Stage, test: str) -> bool:
    """Whether a test in stages/ is left to the nightly run. Of rungs that are not run whole, one kernel on
    the matrix stays, and of those that are slow to compile only the last one's.
    """
    if rung.name in whole_rungs():
        return test == "test_one_kernel" or (test == "test_large_problems" and rung.name in FIRST)
    is_slow = rung.computes in SLOW_TO_COMPILE and rung.name not in last_rungs().values()
    return is_slow or test != "test_one_kernel"


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
