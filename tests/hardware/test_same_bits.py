"""On a GPU a deterministic rung gives the same bits in every launch; a race on the GPU shows as one that does
not. Needs a GPU, and a minute.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ladder.compile import build_all
from ladder.operations import AnyProblem, get_operation, operation_of
from ladder.run.backends import call, get_backend, make_outputs
from ladder.stages import Stage, discover

LAUNCHES = 200


def problem_of(stage: Stage) -> AnyProblem | None:
    """The largest head dimension up to 128 among the problems that are measured, if the rung takes one."""
    dtype = stage.dtypes[-1]
    found = [replace(p, dtype=p.dtype or dtype) for p in get_operation(stage.computes).bench_problems]
    taken = [problem for problem in found if stage.suits(problem) and problem.head_dim <= 128]
    return max(taken, key=lambda problem: problem.head_dim, default=None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(
    "stage", [s for s in discover() if s.is_own and s.deterministic], ids=lambda stage: stage.name
)
def test_every_launch_has_the_same_bits(stage: Stage) -> None:
    problem = problem_of(stage)
    if problem is None:
        pytest.skip("takes no problem that is measured")
    one = stage.narrowed([problem])
    backend = get_backend("cuda")
    [extension] = build_all(
        [one], {one.name: backend.target(one, None)}, {one.name: one.chosen_options({})}
    ).values()
    inputs = operation_of(problem).make_inputs(problem, "cuda")

    def launched() -> dict[str, torch.Tensor]:
        outputs = make_outputs(problem, "cuda", filled=True)
        call(extension, problem, {**inputs, **outputs}, torch.cuda.current_stream().cuda_stream)
        return outputs

    first = launched()
    for launch in range(1, LAUNCHES):
        for name, values in launched().items():
            same = torch.equal(values.view(torch.uint8), first[name].view(torch.uint8))
            assert same, f"launch {launch} has other bits in {name}"
