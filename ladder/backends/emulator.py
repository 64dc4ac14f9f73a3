"""The emulator: CPU tensors in, outputs and exact counts out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.backends.base import Backend, Execution, call, make_outputs
from ladder.build import Target
from ladder.errors import ExecutionError, UnsupportedProblem
from ladder.problem import Problem
from ladder.stages import ARCHITECTURES
from ladder.table import COUNTERS

if TYPE_CHECKING:
    from torch import Tensor

    from ladder.stages import Stage


class EmulatorBackend(Backend):
    """Interprets the stage's PTX on the CPU. It counts; it never times."""

    name = "emulator"
    device = "cpu"

    def target(self, stage: Stage, arch: str | None) -> Target:
        if arch is not None and arch not in ARCHITECTURES:
            raise UnsupportedProblem(f"arch {arch!r} is none of {', '.join(ARCHITECTURES)}")
        return Target("emulator", stage.arch(arch))

    def execute(
        self,
        extension: Path,
        target: Target,
        problem: Problem,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        timed: bool = False,
    ) -> Execution:
        from ladder import emulator

        o, lse = make_outputs(q)
        named = (("q", q, False), ("k", k, False), ("v", v, False), ("o", o, True), ("lse", lse, True))
        memory = [(t.data_ptr(), t.numel() * t.element_size(), name, writable) for name, t, writable in named]
        with emulator.session(arch=target.arch, memory=memory) as session:
            try:
                call(extension, problem, q, k, v, o, lse, stream=0)
            except ExecutionError as error:
                fault = emulator.last_fault()
                if fault is None:
                    raise
                raise ExecutionError(str(fault)) from error
            launches = tuple(session.launches)
        return Execution(o, lse, add_totals(launch.totals() for launch in launches), launches=launches)


def add_totals(totals: Iterable[dict[str, int | None]]) -> dict[str, int | None]:
    """The counter columns summed over launches; one that a launch leaves open stays open."""
    total: dict[str, int | None] = {}
    for launch in totals:
        for name in COUNTERS:
            value, so_far = launch.get(name), total.get(name, 0)
            total[name] = None if value is None or so_far is None else so_far + value
    return total
