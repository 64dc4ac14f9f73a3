"""b5g's claims: sums of dQ in a ring, which items of later groups round, and b5f's work otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ladder.compile import build
from ladder.operations import BackwardProblem, operation_of
from ladder.run.backends import Treatment, get_backend
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "b5g_sums_in_l2"
COUNTS = (
    "wgmma_instructions",
    "wavefronts_gmma",
    "wavefronts_ld",
    "wavefronts_st",
    "tma_load_instructions",
    "tma_store_instructions",
    "conflicts",
)
#: More groups of four heads than the three slots of a GPU with two multiprocessors.
IN_A_RING = [
    BackwardProblem(7, 4, 160, 128, 64, dtype="bf16"),  # two tiles of queries, one item
    BackwardProblem(7, 4, 100, 300, 64, dtype="f16", is_causal=True),  # items without steps
    BackwardProblem(6, 4, 500, 90, 128, dtype="bf16"),  # seven tiles, one item
    BackwardProblem(8, 8, 180, 260, 128, kv_heads=4, dtype="bf16", is_causal=True),
]


@pytest.mark.parametrize("problem", IN_A_RING, ids=str)
def test_ring(problem: BackwardProblem) -> None:
    """In two launches, each of which begins with its own zeros."""
    stage, backend = discover()[NAME], get_backend("emulator")
    target = backend.target(stage, None)
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem)
    expected = operation.reference(problem, inputs)
    with backend.runner(build(stage, target, {}), target) as runner:
        for _ in range(2):
            run = runner.run(problem, inputs, treatment=Treatment(multiprocessors=2))
            assert expected.passed(expected.errors(run.outputs))


def test_late_store_warps(tmp_path: Path) -> None:
    """Those of the first block come late to each share and to each addition. Other blocks wait for them. Its
    own consumers do not if items have at most one step, but no share is missed.
    """
    problem = BackwardProblem(7, 4, 100, 300, 64, dtype="f16", is_causal=True)
    original, backend = discover()[NAME], get_backend("emulator")
    source = original.kernel.read_text()
    for call in ("smem.share_rounded.wait", "tma::add_async"):
        assert source.count(call) == 1
        delay = "if (blockIdx.x == 0)\nfor (int i = 0; i < 1000; i++)\n__nanosleep(1000);\n"
        source = source.replace(call, delay + call)
    (tmp_path / "kernel.cu").write_text(source)
    stage = replace(original, path=tmp_path).narrowed([problem])
    target = backend.target(stage, None)
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem)
    expected = operation.reference(problem, inputs)
    options = stage.chosen_options({})
    with backend.runner(build(stage, target, options), target) as runner:
        run = runner.run(problem, inputs, treatment=Treatment(multiprocessors=2))
    assert expected.passed(expected.errors(run.outputs))


@pytest.mark.parametrize("d", [64, 128])
def test_without_a_ring_the_work_is_that_of_b5f(run_stage: RunStage, d: int) -> None:
    problem = BackwardProblem(2, 4, 320, 200, d, kv_heads=2, is_causal=True)
    before, now = (run_stage(stage, problem).row for stage in ("b5f", NAME))
    assert {name: now[name] for name in COUNTS} == {name: before[name] for name in COUNTS}


@pytest.mark.parametrize(("d", "queries"), [(64, 128), (128, 80)])
def test_items_round_all_groups_but_the_last(d: int, queries: int) -> None:
    """Each tile of sums that they round is set to 0. With more multiprocessors than items there is no ring,
    and the last kernel rounds all groups.
    """
    groups, heads, tiles, lag = 6, 4, 2, 2
    problem = BackwardProblem(groups, heads, tiles * queries, 128, d, dtype="bf16")
    stage, backend = discover()[NAME], get_backend("emulator")
    target = backend.target(stage, None)
    inputs = operation_of(problem).make_inputs(problem)
    with backend.runner(build(stage, target, {}), target) as runner:
        ring, slots = (
            runner.run(problem, inputs, treatment=Treatment(multiprocessors=count)) for count in (2, 200)
        )
    assert [run.launches[-1].grid for run in (ring, slots)] == [(tiles, heads, lag), (tiles, heads, groups)]
    zeros = (groups - lag) * heads * tiles * queries * d * 4 // 32
    written, others = (run.counters["global_sectors_st"] for run in (ring, slots))
    assert written is not None and others is not None
    assert written - others == zeros
