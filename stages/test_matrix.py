"""Every rung on the shape matrix: all sizes, masks, dtypes and inputs that it says it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ladder.comparison import evaluate
from ladder.errors import UnsupportedProblem
from ladder.matrix import full_problems, pairwise_problems
from ladder.problem import DTYPES, Problem
from ladder.stages import Stage, discover

LADDER = discover()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "problem" not in metafunc.fixturenames:
        return
    choose = {test_matrix: pairwise, test_full_grid: full, test_refuses_what_it_does_not_list: refused}
    cases = [(stage, p) for stage in LADDER for p in choose[metafunc.function](stage)]
    metafunc.parametrize("stage, problem", cases, ids=[f"{stage.name}: {p}" for stage, p in cases])


def pairwise(stage: Stage) -> list[Problem]:
    return pairwise_problems(stage.dtypes, stage.head_dims)


def full(stage: Stage) -> list[Problem]:
    return full_problems(stage.dtypes, stage.head_dims)


def refused(stage: Stage) -> list[Problem]:
    """One problem for each dtype and each head dim that the stage does not list."""
    dtypes = [(dtype, stage.head_dims[0]) for dtype in DTYPES if dtype not in stage.dtypes]
    head_dims = [(stage.dtypes[0], d) for d in (16, 32, 48, 64, 96, 128, 256) if d not in stage.head_dims]
    return [Problem(1, 1, 16, 16, d, dtype=dtype) for dtype, d in dtypes + head_dims]


def test_every_stage_folder_is_sound() -> None:
    assert {name: str(error) for name, error in LADDER.broken.items()} == {}


def test_matrix(stage: Stage, problem: Problem, backend: str) -> None:
    result = evaluate(stage, problem, backend=backend)
    assert result.passed, result.describe()


@pytest.mark.full
def test_full_grid(stage: Stage, problem: Problem, backend: str) -> None:
    result = evaluate(stage, problem, backend=backend)
    assert result.passed, result.describe()


def test_refuses_what_it_does_not_list(stage: Stage, problem: Problem) -> None:
    """Through the kernel's own host code too, which must not trust the harness."""
    supported = stage.dtypes if problem.dtype not in stage.dtypes else stage.head_dims
    with pytest.raises(UnsupportedProblem, match=", ".join(map(str, supported))):
        evaluate(stage, problem, backend="emulator")
    claims_everything = replace(stage, dtypes=DTYPES, head_dims=(problem.head_dim,))
    with pytest.raises(UnsupportedProblem):
        evaluate(claims_everything, problem, backend="emulator")
