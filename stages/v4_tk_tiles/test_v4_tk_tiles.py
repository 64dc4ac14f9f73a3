"""v4's claims: S and P in registers only, sixteen workers on the same tiles."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation
from ladder.stages import Stage, discover

RunStage = Callable[..., Evaluation]

NAME = "v4_tk_tiles"


@pytest.mark.parametrize(("d", "ways"), [(32, 4), (64, 8)])
def test_what_the_swizzle_is_worth(run_stage: RunStage, tmp_path: Path, d: int, ways: int) -> None:
    """Without it the 8 rows of each of ldmatrix's four 8x8 tiles share banks: all of them at d = 64, four
    at a time at d = 32."""
    stage = discover()[NAME]
    source = stage.kernel.read_text()
    changed = source.replace("SharedTile<T, keys, d>", "SharedTile<T, keys, d, Placement::plain>")
    assert changed != source
    (tmp_path / "kernel.cu").write_text(changed)
    row = run_stage(replace(stage, path=tmp_path), Problem(1, 1, 64, 100, d)).row
    assert row["conflicts"] == 4 * (ways - 1) * row["ldmatrix_instructions"] > 0


@pytest.mark.parametrize("d", [32, 64, 128])
def test_only_k_v_and_q_go_through_shared_memory(run_stage: RunStage, d: int) -> None:
    """K and V, and Q at d = 128, by stores of 16 bytes a lane; all out by ldmatrix."""
    heads, block_rows, keys = 2, 256, 150
    row = run_stage(NAME, Problem(1, heads, 100, keys, d)).row
    tile = {32: 64, 64: 48, 128: 32}[d]
    rows = 2 * tile * -(-keys // tile) + (block_rows if d == 128 else 0)
    assert row["shared_load_instructions"] == 0
    assert row["shared_store_instructions"] == heads * rows * d * 2 // 512
    assert row["ldmatrix_instructions"] > 0
    assert row["wavefronts_ld"] == 4 * row["ldmatrix_instructions"]


@pytest.mark.parametrize("d", [32, 64, 128])
def test_sixteen_workers(run_stage: RunStage, d: int) -> None:
    [launch] = run_stage(NAME, Problem(1, 1, 256, 64, d)).execution.launches
    assert (launch.grid, launch.block) == ((1, 1, 1), (16 * 32, 1, 1))


def test_k_and_v_are_read_once_for_256_queries(run_stage: RunStage) -> None:
    """v3 reads them for each 64. In both, Q goes straight to fragments, half a sector at a time."""
    problem = Problem(1, 1, 256, 480, 64)
    v3, v4 = (run_stage(name, problem).row["global_sectors_ld"] for name in ("v3", NAME))
    q, kv = 256 * 64 * 2 // 32, 2 * 480 * 64 * 2 // 32
    assert (v3, v4) == (2 * q + 4 * kv, 2 * q + kv)


def test_causal_skips_what_no_row_of_a_worker_sees(run_stage: RunStage) -> None:
    problem = Problem(1, 1, 256, 256, 64)
    full = run_stage(NAME, problem).row
    causal = run_stage(NAME, replace(problem, is_causal=True)).row
    # Worker w of 16 has the rows up to 16 w + 15 and tiles of 48 keys.
    tiles = sum(-(-(16 * w + 16) // 48) for w in range(16))
    assert causal["mma_instructions"] * 16 * 6 == full["mma_instructions"] * tiles


def kernel_lines() -> list[str]:
    """From ``__global__`` to the kernel's closing brace, without blank lines and comments."""
    stage: Stage = discover()[NAME]
    [body] = re.findall(r"^__global__.*?^}$", stage.kernel.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line.strip() for line in body.splitlines()]
    return [line for line in lines if line and not line.startswith("//")]


def test_the_kernel_fits_a_page() -> None:
    assert len(kernel_lines()) <= 60


def test_one_operation_a_line() -> None:
    for line in kernel_lines():
        assert line.startswith("for (") or line.count(";") <= 1, line
