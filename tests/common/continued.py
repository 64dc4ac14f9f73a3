"""Tests that ``make test`` leaves to whole runs of pytest: those of rungs that others continue, and of rungs
that have not been timed.
"""

from __future__ import annotations

from functools import cache

from ladder.stages import discover, root

#: Rungs of which every run also has the lesson and the comparison with a GPU's counters.
FIRST = frozenset({"v1_minimal", "v1b_fa2_loops", "v2_warp_mma", "v3_swizzle", "v4_tk_tiles"})


@cache
def continued_rungs() -> frozenset[str]:
    """The project's rungs that others continue, and those that have not been timed. Neither these nor
    variants continue a rung.
    """
    own = [stage for stage in discover() if stage.path.parent == root()]
    untimed = {stage.name for stage in own if not stage.timed}
    return frozenset(untimed | {one.before for one in own if one.before and one.timed and not one.is_variant})
