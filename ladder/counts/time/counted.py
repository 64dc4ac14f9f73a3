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
    """What was counted for a part of the problem that occurs so many ``times``: by launch, all its work, that
    of its first work item, and the number of its items.
    """

    times: float
    works: Sequence[LaunchWork]
    first: Sequence[LaunchWork]
    items: Sequence[int]

    def of_launch(self, number: int) -> _Part:
        """The part of one launch."""
        return _Part(self.times, self.works[number:][:1], self.first[number:][:1], self.items[number:][:1])


def _total(parts: Sequence[_Part]) -> dict[str, Any]:
    """The amounts of a launch, by place too, and its items that are known to have equal amounts: all of the
    first part, and of the others all if they have as much, or else the first.
    """
    works = [(part.works[0], part.times) for part in parts]
    (whole, _), of_first, count = works[0], parts[0].first[0].amounts, parts[0].items[0]
    of_item = {kind: one for kind, one in of_first.items() if one * count == whole.amounts[kind]}
    items = 0
    for part in parts:
        amounts, first = part.works[0].amounts, part.first[0].amounts
        if all(amounts.get(kind) == one * part.items[0] for kind, one in of_item.items()):
            items += int(part.times) * part.items[0]
        elif all(first.get(kind) == one for kind, one in of_item.items()):
            items += int(part.times)
    return {
        "amounts": added((work.amounts, times) for work, times in works),
        "places": {
            place: added((work.places.get(place, {}), times) for work, times in works)
            for place in dict.fromkeys(place for work, _ in works for place in work.places)
        },
        "items": items,
        "of_item": of_item,
    }


@dataclass(frozen=True)
class _Counting:
    """Counts launches on a GPU of so many multiprocessors."""

    runner: Runner
    multiprocessors: int

    def count(self, problem: AnyProblem, parts: Parts) -> list[LaunchWork]:
        counted = [self._part(part, times) for part, times in parts]
        if isinstance(problem, Problem) and not self._make_up(counted, problem):
            if len(parts) > 1:
                return self.count(problem, by_pairs(problem))
            if 1 in counted[0].items:
                raise too_large(problem)  # one block has all queries
        return [
            replace(shape, **_total([part.of_launch(number) for part in counted]))
            for number, shape in enumerate(self._shapes(problem))
        ]

    def _part(self, problem: AnyProblem, times: float) -> _Part:
        first = self._works(problem, first_blocks=1, multiprocessors=0)
        return _Part(times, self._works(problem), first, self._items(problem))

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

    def _make_up(self, parts: Sequence[_Part], problem: AnyProblem) -> bool:
        """Whether the parts' work items are as many as those of the whole problem, for each launch."""
        of_parts = zip(*([part.times * count for count in part.items] for part in parts), strict=True)
        return [sum(counts) for counts in of_parts] == self._items(problem)

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
    return launch_work(launch.kernel, launch.grid, launch.block, rows)  # type: ignore[arg-type]


def count_program(launches: Sequence[ProgramLaunches]) -> tuple[LaunchWork, ...]:
    """The work of a program's launches, as :func:`ladder.run.emulator.emulate` counted them."""
    return tuple(
        launch_work(one.kernel, one.grid or (1, 1, 1), one.block or (1, 1, 1), one.opcodes, one.launches)
        for one in launches
    )


def _file(extension: Path, problem: AnyProblem, gpu: Gpu) -> Path:
    from ladder.run.evaluation import verdict_key

    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    key = [verdict_key(extension), problem.operation, repr(problem), str(gpu.multiprocessors), *sources]
    return cache.root() / "work" / f"{cache.digest(key)}.json"


def _as_data(work: LaunchWork) -> dict[str, Any]:
    places = [[*place, dict(amounts)] for place, amounts in work.places.items()]
    return {**vars(work), "places": places}


def _kept(file: Path) -> tuple[LaunchWork, ...] | None:
    data = cache.read_json(file)
    return None if data is None else tuple(work_of_data(one) for one in data)


def work_of_data(data: Mapping[str, Any]) -> LaunchWork:
    """The work that was kept as JSON."""
    return LaunchWork(
        **{
            **data,
            "grid": tuple(data["grid"]),
            "block": tuple(data["block"]),
            "places": {(file, line): amounts for file, line, amounts in data["places"]},
        }
    )
