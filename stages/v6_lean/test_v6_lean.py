"""v6's claims: no conflict, S and P in registers only, a kernel of at most 65 lines, nothing spilled."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from ladder.errors import UnsupportedProblem
from ladder.evaluation import Evaluation, evaluate
from ladder.operations import Problem
from ladder.stages import Stage, discover, parse_options

RunStage = Callable[..., Evaluation]

NAME = "v6_lean"
SHAPES = [(1, 1), (100, 150), (300, 300)]


def stage() -> Stage:
    return discover()[NAME]


@pytest.mark.parametrize(("dtype", "is_causal"), [("f16", False), ("bf16", True)])
@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_no_conflicts(run_stage: RunStage, n: int, m: int, d: int, dtype: str, is_causal: bool) -> None:
    row = run_stage(NAME, Problem(1, 2, n, m, d, kv_heads=1, dtype=dtype, is_causal=is_causal)).row
    assert row["conflicts"] == 0


@pytest.mark.parametrize("d", [32, 64, 128])
def test_only_k_v_and_q_go_through_shared_memory(run_stage: RunStage, d: int) -> None:
    """K and V by cp.async, Q at d = 128 by stores of 16 bytes a lane, and all out by ldmatrix."""
    heads, block_rows = 2, 128
    row = run_stage(NAME, Problem(1, heads, 100, 150, d)).row
    assert row["ldmatrix_instructions"] > 0
    assert row["shared_load_instructions"] == 0
    assert row["shared_store_instructions"] == (heads * block_rows * d * 2 // 512 if d == 128 else 0)
    assert row["wavefronts_ld"] == 4 * row["ldmatrix_instructions"]


@pytest.mark.parametrize("d", [32, 64])
def test_sixteen_workers(run_stage: RunStage, d: int) -> None:
    [launch] = run_stage(NAME, Problem(1, 1, 256, 64, d)).execution.launches
    assert (launch.grid, launch.block) == ((1, 1, 1), (16 * 32, 1, 1))


def test_causal_skips_what_no_row_of_a_worker_sees(run_stage: RunStage) -> None:
    problem = Problem(1, 1, 256, 256, 64)
    full = run_stage(NAME, problem).row
    causal = run_stage(NAME, replace(problem, is_causal=True)).row
    # Worker w of 16 has the rows up to 16 w + 15 and tiles of 48 keys.
    tiles = sum(-(-(16 * w + 16) // 48) for w in range(16))
    assert causal["mma_instructions"] * 16 * 6 == full["mma_instructions"] * tiles


ARRANGEMENTS = [
    pytest.param("ROWS=32", (32, 64, 128), marks=pytest.mark.full),
    pytest.param("ROWS=16", (32, 64, 128), marks=pytest.mark.full),
    ("ROWS=16,KEYS=32,PARTS=1,BUFFERS=3", (32, 64)),
    pytest.param("WORKERS=8", (32, 64), marks=pytest.mark.full),
]


@pytest.mark.parametrize(("options", "head_dims"), ARRANGEMENTS, ids=lambda value: str(value))
def test_other_arrangements(run_stage: RunStage, options: str, head_dims: tuple[int, ...]) -> None:
    chosen = parse_options(options)
    for d in head_dims:
        row = run_stage(NAME, Problem(1, 2, 150, 333, d, is_causal=d == 64), options=chosen).row
        assert row["conflicts"] == 0


def test_an_arrangement_that_does_not_fit_is_refused() -> None:
    options, problem = {"ROWS": "16", "KEYS": "32", "BUFFERS": "4"}, Problem(1, 1, 64, 64, 128)
    with pytest.raises(UnsupportedProblem, match="do not fit into 99 KB of shared memory"):
        evaluate(stage().narrowed([problem]), problem, backend="emulator", options=options)


def kernel_lines() -> list[str]:
    """From ``__global__`` to the kernel's closing brace, without blank lines and comments."""
    [body] = re.findall(r"^__global__.*?^}$", stage().kernel.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line.strip() for line in body.splitlines()]
    return [line for line in lines if line and not line.startswith("//")]


def test_the_kernel_fits_a_page() -> None:
    assert len(kernel_lines()) <= 65


def test_one_operation_a_line() -> None:
    for line in kernel_lines():
        assert line.startswith("for (") or line.count(";") <= 1, line


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nothing_is_spilled(spilled_bytes: Callable[[str, str], list[int]], arch: str) -> None:
    assert spilled_bytes(NAME, arch) == [0] * 6
