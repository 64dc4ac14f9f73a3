"""Runs every rung on random problems: sizes, masks, scales, inputs. A correct rung passes all of them.

What has been ruled is kept, by stage: with the same seed an interrupted run goes on where it ended, and a
longer one begins where a shorter one ended.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ladder.common import cache
from ladder.common.progress import Steps, steps
from ladder.compile import build
from ladder.errors import CacheError, LadderError
from ladder.operations import AnyProblem, get_operation
from ladder.run.backends import get_backend
from ladder.run.evaluation import evaluate_all, verdict_key
from ladder.stages import Stage, discover

#: Problems of a stage that share a process, before it is the next stage's turn.
_AT_ONCE = 50


@dataclass(frozen=True)
class Failure:
    """A problem on which a stage gives a wrong result or an error."""

    stage: str
    problem: AnyProblem
    text: str


@dataclass
class _Record:
    """How many of a stage's problems have been ruled on, and by their number why some failed."""

    file: Path
    done: int = 0
    wrong: dict[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> _Record:
        kept = cache.read_json(file)
        if not isinstance(kept, dict):
            return cls(file)
        return cls(file, kept["done"], {int(number): text for number, text in kept["wrong"].items()})

    def add(self, text: str) -> None:
        """Adds the next problem's result; ``text`` is empty if it passed."""
        if text:
            self.wrong[self.done] = text
        self.done += 1
        with suppress(CacheError):  # the problem is tried again next time
            cache.write_text(self.file, json.dumps({"done": self.done, "wrong": self.wrong}))


@dataclass(frozen=True)
class _Draw:
    """The random problems of a seed."""

    seed: int
    backend: str
    largest: int

    def problems(self, stage: Stage) -> Iterator[AnyProblem]:
        drawn = get_operation(stage.computes).random(self.seed, stage.dtypes, stage.head_dims, self.largest)
        return filter(stage.suits, drawn)

    def record(self, stage: Stage) -> _Record:
        """What is known of the stage as it is built now."""
        target = get_backend(self.backend).target(stage, None)
        key = verdict_key(build(stage, target, stage.chosen_options({})))
        name = cache.digest([key, str(self.seed), str(self.largest)])
        return _Record.read(cache.root() / "random" / f"{stage.name}-{name}.json")


def failures(
    stages: list[Stage], problems: int, seed: int, *, backend: str = "auto", largest: int = 300
) -> Iterator[Failure]:
    """Runs ``problems`` random problems, shared among the stages, and yields the failures: first those that
    an earlier run with this seed found.
    """
    draw = _Draw(seed, backend, largest)
    share, more = divmod(problems, len(stages))
    goals = {stage.name: share + (place < more) for place, stage in enumerate(stages)}
    with steps("Running", problems, elsewhere=False) as progress:
        records = {}
        for stage in stages:
            try:
                records[stage.name] = draw.record(stage)
            except LadderError as error:
                yield Failure(stage.name, next(draw.problems(stage)), str(error))
        for stage in stages:
            if stage.name in records:
                yield from _known(stage, draw, records[stage.name], goals[stage.name], progress)
        left = [stage for stage in stages if stage.name in records]
        while left := [stage for stage in left if records[stage.name].done < goals[stage.name]]:
            for stage in left:
                yield from _turn(stage, draw, records[stage.name], goals[stage.name], progress)


def _known(stage: Stage, draw: _Draw, record: _Record, goal: int, progress: Steps) -> Iterator[Failure]:
    """The failures among the stage's first ``goal`` problems that have been found before."""
    for number, problem in enumerate(itertools.islice(draw.problems(stage), min(record.done, goal))):
        with progress.step(stage.name):
            if number in record.wrong:
                yield Failure(stage.name, problem, record.wrong[number])


def _turn(stage: Stage, draw: _Draw, record: _Record, goal: int, progress: Steps) -> Iterator[Failure]:
    """Rules on the stage's next problems."""
    end = min(goal, record.done + _AT_ONCE)
    problems = [*itertools.islice(draw.problems(stage), record.done, end)]
    found = evaluate_all(stage, problems, backend=draw.backend)
    for problem in problems:
        with progress.step(stage.name):
            text = next(found).text
            record.add(text)
        if text:
            yield Failure(stage.name, problem, text)
    next(found, None)  # to the end, which ends their process


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    parser.add_argument("--problems", type=int, default=1000, help="over all stages (1000)")
    parser.add_argument("--seed", type=int, help="to repeat or continue a run (a new one each time)")
    parser.add_argument("--largest", type=int, default=300, help="N and M (300)")
    parser.add_argument("--backend", default="auto", help="auto (a GPU if there is one), emulator or cuda")


def main(options: argparse.Namespace) -> int:
    """Prints the seed, and each failure with the command that reproduces it; returns 1 if there is one."""
    if options.problems < 1 or options.largest < 1:
        raise LadderError("--problems and --largest must be at least 1")
    ladder = discover()
    stages = [ladder[name] for name in options.stages] or list(ladder)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"{options.problems:,} problems, --seed {seed}", flush=True)
    count = 0
    for failure in failures(stages, options.problems, seed, backend=options.backend, largest=options.largest):
        count += 1
        repeat = shlex.join(["ladder", "run", failure.stage])
        print(f"{repeat} {failure.problem.command_options}\n  {failure.text}", flush=True)
    print(f"{count:,} failed")
    return 1 if count else 0
