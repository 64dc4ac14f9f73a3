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
    """The project's rungs that others continue with the same needs, and those that have not been timed, which
    continue none. A variant stands beside the rung that it continues.
    """
    own = {stage.name: stage for stage in discover() if stage.path.parent == root()}
    found = {one.name for one in own.values() if not one.timed}
    for one in own.values():
        before = own.get(one.before or "")
        if before and one.timed and (one.needs, one.is_variant) == (before.needs, before.is_variant):
            found.add(before.name)
    return frozenset(found)
