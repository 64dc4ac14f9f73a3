"""The work of a stage's launches, or of a program's, counted by the emulator and kept in the cache."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.common import cache
from ladder.counts.time.gpus import Gpu
from ladder.counts.time.scaling import Parts, by_pairs, parts_of, too_large
from ladder.counts.time.work import LaunchWork, added, launch_work
from ladder.errors import CacheError
from ladder.operations import AnyProblem, Problem, operation_of
from ladder.stages import Stage

if TYPE_CHECKING:
    from ladder.run.backends import Runner
    from ladder.run.emulator import Launch, ProgramLaunches


#: The modules that the kept work depends on.
_COUNTING = ("counted.py", "least.py", "scaling.py", "work.py")


@dataclass(frozen=True)
class Counted:
    """The launches' work for ``problem``, and the problems that were emulated, each so many times."""

    problem: AnyProblem
    parts: Parts
    launches: tuple[LaunchWork, ...]


def count_stage(
    stage: Stage,
    problem: AnyProblem,
    gpu: Gpu,
    *,
    options: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Counted:
    """The work of a stage's launches on this GPU's number of multiprocessors. A large problem's is that of
    its parts, see :func:`ladder.counts.time.scaling.parts_of`.

    Raises :class:`UnsupportedProblem` if the stage does not take the problem or cannot run on the GPU,
    :class:`InvalidProblem` if the problem is too large, :class:`BuildError`, :class:`ExecutionError`.
    """
    from ladder.compile import EmulatorTarget, build
    from ladder.run.backends import EmulatorBackend

    problem = stage.accept(problem)
    target, parts = EmulatorTarget(gpu.arch_of(stage)), parts_of(problem)
    extension = build(stage, target, stage.chosen_options(options or {}), only=problem)
    file = _file(extension, problem, gpu)
    launches = None if fresh else _kept(file)
    if launches is None:
        with EmulatorBackend().runner(extension, target) as runner:
            launches = tuple(_Counting(runner, gpu.multiprocessors).count(problem, parts))
        with suppress(CacheError):
            cache.write_text(file, json.dumps([_as_data(one) for one in launches]))
    return Counted(problem, parts, launches)


@dataclass(frozen=True)
class _Part:
    """What was counted for one launch of a part of the problem that occurs so many ``times``: all its work,
    that of its first and of its last work item, and the number of its items.
    """

    times: float
    work: LaunchWork
    first: LaunchWork
    last: LaunchWork
    items: int

    def of_ends(self, kind: str) -> tuple[float, float]:
        """The amounts of the first and the last item, the larger one first."""
        first, last = self.first.amounts.get(kind, 0), self.last.amounts.get(kind, 0)
        return max(first, last), min(first, last)

    def equal_items(self, kind: str, amount: float) -> int:
        """How many items have this amount, in all times: all, or all but the smaller one of the two ends, if
        that is what the sum over all items says.
        """
        total, (_, smaller) = self.work.amounts.get(kind, 0), self.of_ends(kind)
        if total == self.items * amount:
            return int(self.times) * self.items
        return int(self.times) * (self.items - 1) if total == (self.items - 1) * amount + smaller else 0


def _total(parts: Sequence[_Part]) -> dict[str, Any]:
    """The amounts of a launch, by place too, and its items of equal amounts."""
    of_item = {kind: parts[0].of_ends(kind)[0] for kind in parts[0].work.amounts}
    items = {kind: sum(part.equal_items(kind, amount) for part in parts) for kind, amount in of_item.items()}
    return {
        "amounts": added((part.work.amounts, part.times) for part in parts),
        "places": {
            place: added((part.work.places.get(place, {}), part.times) for part in parts)
            for place in dict.fromkeys(place for part in parts for place in part.work.places)
        },
        "items": {kind: (count, of_item[kind]) for kind, count in items.items() if count},
    }


@dataclass(frozen=True)
class _Counting:
    """Counts launches on a GPU of so many multiprocessors."""

    runner: Runner
    multiprocessors: int

    def count(self, problem: AnyProblem, parts: Parts) -> list[LaunchWork]:
        counted = [self._parts(part, times) for part, times in parts]
        if isinstance(problem, Problem) and not self._make_up(counted, problem):
            if len(parts) > 1:
                return self.count(problem, by_pairs(problem))
            if any(launch.items == 1 for launch in counted[0]):
                raise too_large(problem)  # one block has all queries
        launches = zip(self._shapes(problem), *counted, strict=True)
        return [replace(shape, **_total(of_launch)) for shape, *of_launch in launches]

    def _parts(self, problem: AnyProblem, times: float) -> list[_Part]:
        """By launch."""
        works, items = self._works(problem), self._items(problem)
        first = self._works(problem, first_blocks=1, multiprocessors=0)
        last = self._works(problem, last_blocks=1, multiprocessors=0)
        return [_Part(times, *of_launch) for of_launch in zip(works, first, last, items, strict=True)]

    def _works(self, problem: AnyProblem, **treatment: int) -> list[LaunchWork]:
        return [work_of_launch(launch) for launch in self._launches(problem, **treatment)]

    def _shapes(self, problem: AnyProblem) -> list[LaunchWork]:
        """The launches of a problem, without their work."""
        launches = self._launches(problem, skip_kernels=True)
        return [LaunchWork(launch.kernel, launch.grid, launch.block, {}) for launch in launches]

    def _items(self, problem: AnyProblem) -> list[int]:
        """How many work items each launch has. With so many multiprocessors that each block has one,
        persistent kernels start a block per item.
        """
        launches = self._launches(problem, first_blocks=1, multiprocessors=0, skip_kernels=True)
        return [math.prod(launch.grid) for launch in launches]

    def _make_up(self, parts: Sequence[Sequence[_Part]], problem: AnyProblem) -> bool:
        """Whether the parts' work items are as many as those of the whole problem, for each launch."""
        sums = [sum(part.times * part.items for part in of_launch) for of_launch in zip(*parts, strict=True)]
        return sums == self._items(problem)

    def _launches(self, problem: AnyProblem, **treatment: int | bool) -> Sequence[Launch]:
        from ladder.run.backends import Treatment

        skips = treatment.get("skip_kernels", False)
        if skips and isinstance(problem, Problem):
            problem = replace(problem, inputs="equal")  # quickly drawn
        chosen = Treatment(**{"multiprocessors": self.multiprocessors, **treatment})  # type: ignore[arg-type]
        inputs = operation_of(problem).make_inputs(problem)
        return self.runner.run(problem, inputs, treatment=chosen, details=not skips).launches


def work_of_launch(launch: Launch) -> LaunchWork:
    frame = launch.instructions()
    frame = frame[frame["executed"] > 0].astype(object)
    rows = frame.where(frame.notna(), None).to_dict("records")
    return launch_work(launch.kernel, launch.grid, launch.block, rows)


def count_program(launches: Sequence[ProgramLaunches]) -> tuple[LaunchWork, ...]:
    """The work of a program's launches, as :func:`ladder.run.emulator.emulate` counted them."""
    return tuple(
        launch_work(one.kernel, one.grid or (1, 1, 1), one.block or (1, 1, 1), one.opcodes, one.launches)
        for one in launches
    )


def _file(extension: Path, problem: AnyProblem, gpu: Gpu) -> Path:
    from ladder.run.evaluation import verdict_key

    sources = [(Path(__file__).parent / name).read_bytes() for name in _COUNTING]
    key: list[str | bytes] = [
        verdict_key(extension),
        problem.operation,
        repr(problem),
        str(gpu.multiprocessors),
        *sources,
    ]
    return cache.root() / "work" / f"{cache.digest(key)}.json"


def _as_data(work: LaunchWork) -> dict[str, Any]:
    places = [[*place, dict(amounts)] for place, amounts in work.places.items()]
    return {**vars(work), "places": places}


def _kept(file: Path) -> tuple[LaunchWork, ...] | None:
    data = cache.read_json(file)
    return tuple(work_of_data(one) for one in data) if isinstance(data, list) else None


def work_of_data(data: Mapping[str, Any]) -> LaunchWork:
    """The work that was kept as JSON."""
    return LaunchWork(
        **{
            **data,
            "grid": tuple(data["grid"]),
            "block": tuple(data["block"]),
            "places": {(file, line): amounts for file, line, amounts in data["places"]},
            "items": {kind: (count, amount) for kind, (count, amount) in data["items"].items()},
        }
    )
