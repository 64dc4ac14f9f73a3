"""Every rung on the shape matrix: all sizes, masks, dtypes and inputs that it says it takes."""

from __future__ import annotations

import pytest

from ladder.comparison import evaluate
from ladder.errors import UnsupportedProblem
from ladder.matrix import HEAD_DIMS, full_problems, pairwise_problems
from ladder.problem import DTYPES, Problem
from ladder.stages import Stage, discover

LADDER = discover()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "problem" in metafunc.fixturenames:
        choose = full_problems if metafunc.function is test_full_grid else pairwise_problems
        cases = [(stage, p) for stage in LADDER for p in choose(stage.dtypes, stage.head_dims)]
        metafunc.parametrize("stage, problem", cases, ids=[f"{s.name}: {p}" for s, p in cases])
    elif "stage" in metafunc.fixturenames:
        metafunc.parametrize("stage", list(LADDER), ids=[stage.name for stage in LADDER])


@pytest.mark.parametrize("name", sorted(LADDER.broken))
def test_stage_is_sound(name: str) -> None:
    raise LADDER.broken[name]


def test_matrix(stage: Stage, problem: Problem, backend: str) -> None:
    result = evaluate(stage, problem, backend=backend)
    assert result.passed, result.describe()


@pytest.mark.full
def test_full_grid(stage: Stage, problem: Problem, backend: str) -> None:
    result = evaluate(stage, problem, backend=backend)
    assert result.passed, result.describe()


def test_refuses_what_it_does_not_list(stage: Stage) -> None:
    """Through the kernel's own host code too, which must not trust the harness."""
    for dtype in DTYPES:
        for head_dim in (*HEAD_DIMS, 48):
            problem = Problem(1, 1, 16, 16, head_dim, dtype=dtype)
            if dtype in stage.dtypes and head_dim in stage.head_dims:
                continue
            with pytest.raises(UnsupportedProblem, match=str(stage.dtypes[0] if dtype not in stage.dtypes else head_dim)):
                evaluate(stage, problem, backend="emulator")
            with pytest.raises(UnsupportedProblem):
                evaluate(_claiming_everything(stage), problem, backend="emulator")


def _claiming_everything(stage: Stage) -> Stage:
    from dataclasses import replace

    return replace(stage, dtypes=DTYPES, head_dims=(*HEAD_DIMS, 48))
