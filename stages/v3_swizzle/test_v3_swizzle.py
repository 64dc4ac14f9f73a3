"""v3's claims: no conflict at all, nothing else changed, and no other parameters would do."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ladder.counts import by_kernel_line, line_table
from ladder.operations import Problem
from ladder.run.evaluation import Evaluation, evaluate
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

SHAPES = [(1, 1), (100, 150), (129, 63)]


@pytest.mark.parametrize(("dtype", "is_causal"), [("f16", False), ("bf16", True)])
@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_no_conflicts(run_stage: RunStage, n: int, m: int, d: int, dtype: str, is_causal: bool) -> None:
    row = run_stage("v3_swizzle", Problem(1, 2, n, m, d, kv_heads=1, dtype=dtype, is_causal=is_causal)).row
    assert row["conflicts_ld"] == 0
    assert row["conflicts_st"] == 0
    assert row["conflicts"] == 0


@pytest.mark.parametrize("d", [32, 64, 128])
def test_no_conflicts_on_sm_75(run_stage: RunStage, d: int) -> None:
    assert run_stage("v3_swizzle", Problem(1, 1, 70, 90, d), arch="sm_75").row["conflicts"] == 0


@pytest.mark.parametrize("d", [32, 64, 128])
def test_saves_the_conflicts_of_v2_and_nothing_else(run_stage: RunStage, d: int) -> None:
    problem = Problem(1, 2, 100, 150, d, is_causal=True)
    v2, v3 = (run_stage(stage, problem).row for stage in ("v2", "v3_swizzle"))
    assert v2["conflicts"] > 0
    for kind in ("ld", "st"):
        assert v3[f"wavefronts_{kind}"] == v2[f"wavefronts_{kind}"] - v2[f"conflicts_{kind}"]
    for same in ("shared_load_instructions", "shared_store_instructions", "ldmatrix_instructions"):
        assert v3[same] == v2[same]
    for same in ("mma_instructions", "global_sectors_ld", "global_sectors_st"):
        assert v3[same] == v2[same]


def test_differs_from_v2_by_the_swizzle_alone() -> None:
    stages = discover()
    v2, v3 = (stages[name].kernel.read_text().splitlines() for name in ("v2", "v3_swizzle"))
    changed = [line for line in difflib.unified_diff(v2, v3, n=0) if line[0] in "+-"][2:]
    assert len(changed) < 60


# Of the 8 rows of a pass of ldmatrix over a tile of K, so many meet in a bank.
@pytest.mark.parametrize(
    ("parameters", "ways"),
    [
        pytest.param("0, 3, 3", {64: 8, 128: 8}, marks=pytest.mark.full),
        ("3, 3, 3", {64: 1, 128: 2}),
        pytest.param("3, 3, 4", {64: 2, 128: 1}, marks=pytest.mark.full),
    ],
)
def test_parameters_for_one_row_length_are_wrong_for_another(
    tmp_path: Path, parameters: str, ways: dict[int, int]
) -> None:
    stage = discover()["v3_swizzle"]
    source = stage.kernel.read_text()
    changed = source.replace("swizzle<B, M, S>(", f"swizzle<{parameters}>(")
    assert changed != source
    (tmp_path / "kernel.cu").write_text(changed)
    for d, expected in ways.items():
        problem = Problem(1, 1, 64, 64, d)
        result = evaluate(replace(stage, path=tmp_path), problem, backend="emulator")
        assert result.passed, result.text
        [kernel] = [
            file
            for file in by_kernel_line(line_table(result.execution.launches))
            if file.path.name == "kernel.cu"
        ]
        [counts] = [counts for _, text, counts in kernel.listing() if counts and "k_smem.at(n" in text]
        ideal = 4 * 64 * d // 256 * 4  # passes of four warps over 64 keys
        assert counts.conflicts == ideal * (expected - 1)
