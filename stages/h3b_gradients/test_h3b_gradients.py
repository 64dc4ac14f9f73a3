"""h3b's claims: five products for the forward pass's two, no conflict, and with SAME_BITS the same bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.evaluation import Evaluation
from ladder.operations import HstuBackwardProblem, HstuProblem
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "h3b_gradients"


def test_five_products_where_the_forward_pass_has_two(run_stage: RunStage) -> None:
    """No mask, sequences that the tiles of both fit."""
    sizes = {"heads": 2, "head_dim": 64, "q_lens": (128, 256), "window": (-1, -1), "dtype": "f16"}
    forward = run_stage("h3_rab", HstuProblem(**sizes, bias_heads=1)).row  # type: ignore[arg-type]
    row = run_stage(NAME, HstuBackwardProblem(**sizes)).row  # type: ignore[arg-type]
    assert 2 * row["mma_instructions"] == 5 * forward["mma_instructions"]
    assert row["conflicts"] == 0


@pytest.mark.full
@pytest.mark.parametrize(("arch", "bias_heads", "threads"), [("sm_86", 0, 128), ("sm_90", 2, 256)])
def test_the_shared_memory_decides_how_large_a_block_is(
    run_stage: RunStage, arch: str, bias_heads: int, threads: int
) -> None:
    """At d = 128. On an sm_80, where the other tests run, blocks are small with a bias and large without."""
    problem = HstuBackwardProblem(
        2, 128, (100, 0, 130), (230, 70, 130), targets=(7, 0, 20), bias_heads=bias_heads, dtype="f16"
    )
    result = run_stage(discover()[NAME].narrowed([problem]), problem, arch=arch)
    assert [launch.block for launch in result.execution.launches] == [(threads, 1, 1)] * 2


#: Of one dtype and head dim, whose kernels compile in seconds.
ORDERED = [
    # Heads share a bias, and the mask leaves gaps between the key tiles that a query tile needs.
    HstuBackwardProblem(
        3,
        32,
        (200, 290),
        contexts=(3, 0),
        targets=(60, 280),
        target_group_size=7,
        bias_heads=1,
        dtype="f16",
    ),
    HstuBackwardProblem(2, 32, (150, 260), (300, 300), window=(100, 5), dtype="f16"),
    HstuBackwardProblem(2, 32, (150, 260), (300, 300), intervals=True, bias_heads=1, dtype="f16"),
]


@pytest.mark.parametrize("problem", ORDERED, ids=str)
def test_the_same_bits(
    run_stage: RunStage, monkeypatch: pytest.MonkeyPatch, problem: HstuBackwardProblem
) -> None:
    outputs = []
    for threads in ("1", "2", "16", "2"):
        monkeypatch.setenv("LADDER_THREADS", threads)
        result = run_stage(discover()[NAME].narrowed(ORDERED), problem, options={"SAME_BITS": "1"})
        outputs.append(result.execution.outputs)
    first, *others = outputs
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)
