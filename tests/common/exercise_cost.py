"""Which exercises are tried by default, and which behind ``full``."""

from __future__ import annotations

from rungs import named

from ladder.course.exercises import Exercise


def is_quick(exercise: Exercise) -> bool:
    """Whether it compiles in seconds: programs, rungs of attention below those for sm_90a, b1 and h1."""
    if exercise.rung is None or exercise.rung in (named("b1"), named("h1")):
        return True
    stage = exercise.stage()
    return stage.computes == "attention" and not stage.only_arch
