"""h7's claims: h6b's products, and only rows that exist are loaded and stored; the ragged tile sees few keys;
and the counter is 0 again after each launch, items without queries counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.compile import build
from ladder.operations import HstuProblem, get_operation
from ladder.run.backends import get_backend
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "h7_tile_scheduler"
#: A consumer's queries, the consumers of a block, and a tile's keys.
ROWS, CONSUMERS, KEYS = 64, {32: 3, 64: 3, 128: 3, 256: 2}, {32: 128, 64: 128, 128: 80, 256: 64}
#: More items than an H200 has multiprocessors, with two buffers of Q and with one. The short sequences have
#: fewer items than the longest one, and one sequence has none.
MANY = [
    HstuProblem(50, 32, (200, 5, 0, 193), contexts=(3, 0, 0, 0), dtype="bf16"),
    HstuProblem(70, 256, (130, 1, 70), targets=(9, 0, 70), dtype="f16"),
]


@pytest.mark.parametrize("problem", MANY, ids=str)
def test_launches_follow_each_other(problem: HstuProblem) -> None:
    """In one process, where the counter stays: it counts to the number of items and begins again."""
    stage, backend = discover()[NAME], get_backend("emulator")
    target = backend.target(stage, None)
    inputs = get_operation("hstu").make_inputs(problem)
    with backend.runner(build(stage, target, {}), target) as runner:
        first, *others = (runner.run(problem, inputs) for _ in range(3))
    for other in others:
        for name, output in first.outputs.items():
            assert not output.isnan().any()
            assert torch.equal(other.outputs[name], output)


@pytest.mark.parametrize("d", KEYS)
@pytest.mark.parametrize("n", [1, 64, 65, 128, 129, 192, 193, 333])
def test_consumers_without_rows_load_multiply_and_store_nothing(run_stage: RunStage, n: int, d: int) -> None:
    """Each 64 rows have one load of Q, products with the tiles of keys that they see, and one store of O. An
    item loads the tiles that its last row sees. The sequence has neighbours on both sides."""
    heads, lengths = 2, (70, n, 100)
    row = run_stage(NAME, HstuProblem(heads, d, lengths)).row
    ends = [[*range(ROWS, length + ROWS, ROWS)] for length in lengths]  # of consumers' rows, multiples of 64
    tiles = sum(
        -(-min(length, end) // KEYS[d]) for length, all_ in zip(lengths, ends, strict=True) for end in all_
    )
    loaded = sum(
        -(-min(length, end) // KEYS[d])
        for length, all_ in zip(lengths, ends, strict=True)
        for end in all_[:: -CONSUMERS[d]]  # the last consumer of each item
    )
    consumers = sum(len(all_) for all_ in ends)
    instructions = 4 * (d // 16 + KEYS[d] // 16)  # of four warps: S = Q K^T and O += P V
    assert row["wgmma_instructions"] == heads * tiles * instructions
    assert row["tma_load_instructions"] == heads * (consumers + 2 * loaded)
    assert row["tma_store_instructions"] == heads * consumers
    assert row["conflicts"] == row["conflicts_gmma"] == 0


#: The second and the last have more heads than a group, of which the last has fewer.
MASKS = [
    HstuProblem(2, 64, (250, 130, 333), contexts=(3, 100, 0), targets=(40, 1, 0), target_group_size=3),
    HstuProblem(40, 128, (130, 70), (300, 200), window=(50, 20), dtype="bf16"),
    HstuProblem(17, 256, (200, 129), intervals=True, dtype="bf16"),
]


@pytest.mark.parametrize("problem", MASKS, ids=str)
def test_the_products_are_those_of_h6b(run_stage: RunStage, problem: HstuProblem) -> None:
    """The consumers' rows begin at the same multiples of 64."""
    before, after = (run_stage(name, problem).row for name in ("h6b", NAME))
    assert after["wgmma_instructions"] == before["wgmma_instructions"] > 0


def test_fewer_loads_and_stores(run_stage: RunStage) -> None:
    """Of 256 queries the first item has 64 rows, which see one tile of 80 keys, instead of the last."""
    rows = [run_stage(name, HstuProblem(1, 128, (256,))).row for name in ("h6b", NAME)]
    assert [row["tma_load_instructions"] for row in rows] == [20, 14]
    assert [row["tma_store_instructions"] for row in rows] == [6, 4]


@pytest.mark.parametrize("d", [32, 256])
@pytest.mark.parametrize("n", [1, 65, 193])
def test_items_with_idle_consumers_follow_each_other(run_stage: RunStage, n: int, d: int) -> None:
    """More items than multiprocessors: a consumer is idle in one and busy in the next, or idle in both."""
    run_stage(NAME, HstuProblem(80, d, (n, 150), contexts=(1, 2), dtype="bf16"))
