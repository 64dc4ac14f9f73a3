"""Runs every rung on random problems: sizes, masks, scales, inputs. A correct rung passes all of them."""

from __future__ import annotations

import argparse
import itertools
import random
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from ladder.common.progress import steps
from ladder.errors import LadderError
from ladder.evaluation import evaluate
from ladder.operations import AnyProblem, get_operation
from ladder.stages import Stage, discover


@dataclass(frozen=True)
class Failure:
    """A problem on which a stage gives a wrong result or an error."""

    stage: str
    problem: AnyProblem
    text: str


def failures(
    stages: list[Stage], problems: int, seed: int, *, backend: str = "auto", largest: int = 300
) -> Iterator[Failure]:
    """Runs ``problems`` random problems, rotating through the stages, and yields the failures."""
    drawn = {
        stage.name: filter(
            stage.suits, get_operation(stage.computes).random(seed, stage.dtypes, stage.head_dims, largest)
        )
        for stage in stages
    }
    with steps("Running", problems, elsewhere=False) as progress:
        for stage in itertools.islice(itertools.cycle(stages), problems):
            problem = next(drawn[stage.name])
            with progress.step(stage.name):
                try:
                    result = evaluate(stage, problem, backend=backend)
                except LadderError as error:
                    yield Failure(stage.name, problem, str(error))
                    continue
            if not result.passed:
                yield Failure(stage.name, problem, result.describe())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    parser.add_argument("--problems", type=int, default=1000, help="over all stages (1000)")
    parser.add_argument("--seed", type=int, help="to repeat a run (a new one each time)")
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
