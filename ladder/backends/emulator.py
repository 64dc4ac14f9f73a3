"""The emulator: CPU tensors in, outputs and exact counts out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.backends.base import Backend, Execution, call, make_outputs
from ladder.build import Target
from ladder.errors import ExecutionError
from ladder.findings import Finding
from ladder.problem import Problem
from ladder.stages import require_arch
from ladder.table import COUNTERS

if TYPE_CHECKING:
    from torch import Tensor

    from ladder.stages import Stage


class EmulatorBackend(Backend):
    """Interprets the stage's PTX on the CPU. It counts; it never times."""

    name = "emulator"
    device = "cpu"

    def target(self, stage: Stage, arch: str | None) -> Target:
        if arch is not None:
            require_arch(arch)
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
        return self._run(extension, target, problem, q, k, v, check=False)[0]

    def check(
        self, extension: Path, target: Target, problem: Problem, q: Tensor, k: Tensor, v: Tensor
    ) -> tuple[Execution, list[Finding]]:
        """As :meth:`execute`, with the sanitizer on: what it found comes with the outputs."""
        return self._run(extension, target, problem, q, k, v, check=True)

    def _run(
        self,
        extension: Path,
        target: Target,
        problem: Problem,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        check: bool,
    ) -> tuple[Execution, list[Finding]]:
        from ladder import emulator

        o, lse = make_outputs(q)
        failure: ExecutionError | None = None
        named = (("q", q, False), ("k", k, False), ("v", v, False), ("o", o, True), ("lse", lse, True))
        memory = [(t.data_ptr(), t.numel() * t.element_size(), name, writable) for name, t, writable in named]
        with emulator.session(arch=target.arch, memory=memory, check=check) as session:
            try:
                call(extension, problem, q, k, v, o, lse, stream=0)
            except ExecutionError as error:
                fault = emulator.last_fault()
                failure = ExecutionError(str(fault)) if fault else error
                if not check:
                    raise failure from error
            launches = tuple(session.launches)
        if failure and not session.findings:
            raise failure
        totals = add_totals(launch.totals() for launch in launches)
        return Execution(o, lse, totals, launches=launches), session.findings


def add_totals(totals: Iterable[dict[str, int | None]]) -> dict[str, int | None]:
    """The counter columns summed over launches; one that a launch leaves open stays open."""
    total: dict[str, int | None] = {}
    for launch in totals:
        for name in COUNTERS:
            value, so_far = launch.get(name), total.get(name, 0)
            total[name] = None if value is None or so_far is None else so_far + value
    return total
