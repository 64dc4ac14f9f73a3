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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [16, 32, 48, 64, 96, 128])
def test_refuses_what_it_does_not_list(stage: Stage, dtype: str, head_dim: int) -> None:
    """Through the kernel's own host code too, which must not trust the harness."""
    problem = Problem(1, 1, 16, 16, head_dim, dtype=dtype)
    if dtype in stage.dtypes and head_dim in stage.head_dims:
        pytest.skip("it does")
    supported = stage.head_dims if dtype in stage.dtypes else stage.dtypes
    with pytest.raises(UnsupportedProblem, match=", ".join(map(str, supported))):
        evaluate(stage, problem, backend="emulator")
    claims_everything = replace(stage, dtypes=DTYPES, head_dims=(head_dim,))
    with pytest.raises(UnsupportedProblem):
        evaluate(claims_everything, problem, backend="emulator")
