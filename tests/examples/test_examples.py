"""The examples are short and free of conflicts, and have the counts that their arithmetic implies.

The matrix of all stages (``pytest stages/``) tests that they are correct.
"""

import pytest

from ladder.operations import get_operation
from ladder.run.evaluation import evaluate
from ladder.stages import discover
from ladder.stages.places import examples_root

EXAMPLES = [stage for stage in discover() if stage.path.parent == examples_root()]
MOST_LINES = 60
#: A warp moves 16 bytes of a row at once between global memory and a 16-bit register tile: half a sector.
HALVES = 2


def kernel_lines(source):
    """The lines from the kernel's template line to its closing brace."""
    body = source[source.index("__global__") :]
    return body[: body.index("\n}\n")].count("\n") + 2


def counts(name, **sizes):
    """The row of an example, which must be correct."""
    problem = get_operation(discover()[name].computes).problem(**sizes)
    result = evaluate(name, problem, backend="emulator")
    assert result.passed, result.text
    return result.row


@pytest.mark.parametrize("stage", EXAMPLES, ids=lambda stage: stage.name)
def test_a_kernel_is_short_and_written_in_tiles(stage):
    source = stage.kernel.read_text()
    assert kernel_lines(source) < MOST_LINES
    assert '#include "tiles/tiles.h"' in source and "asm" not in source


def test_all_of_them_are_here():
    names = {stage.name for stage in EXAMPLES}
    assert names == {
        *("gemm", "layer_norm", "linear_attention", "norm_gate", "norm_gate_backward"),
        *("layer_norm_cluster", "rotary_embedding", "row_softmax"),
    }


def test_a_matrix_product_has_no_conflict():
    row = counts("gemm", rows=128, cols=256, depth=96)
    assert row["conflicts"] == 0
    # mma is 16 x 8 x 16. Each ldmatrix loads 16 x 16 of A or B: a warp needs four of each for its 64 x 64.
    steps = 96 // 16
    assert row["mma_instructions"] == 128 // 16 * 256 // 8 * steps
    assert row["ldmatrix_instructions"] == 2 * 4 * (4 + 4) * steps
    # A is read once for each of the two blocks, B once, 32 bytes a sector.
    assert row["global_sectors_ld"] == (2 * 128 * 96 + 96 * 256) * 2 // 32
    assert row["global_sectors_st"] == HALVES * 128 * 256 * 2 // 32


def test_linear_attention_keeps_its_state_on_the_chip():
    row = counts("linear_attention", heads=3, length=256, head_dim=64)
    assert row["conflicts"] == 0
    # k and v go to shared memory, q to registers, from which o comes; q k^T, P v, q S and k^T v are products.
    sectors = 3 * 256 * 64 * 2 // 32
    assert row["global_sectors_ld"] == (2 + HALVES) * sectors
    assert row["global_sectors_st"] == HALVES * sectors
    assert row["mma_instructions"] == 3 * 256 // 64 * 4 * (64 // 16 * 64 // 8 * 64 // 16)


def test_rows_go_through_registers_alone():
    row = counts("layer_norm", rows=128, cols=64)
    assert row["conflicts"] == row["shared_load_instructions"] == row["shared_store_instructions"] == 0
    assert row["global_sectors_st"] == HALVES * 128 * 64 * 2 // 32
    row = counts("norm_gate", rows=128, cols=64)
    assert row["conflicts"] == row["shared_load_instructions"] == row["shared_store_instructions"] == 0
    assert row["global_sectors_st"] == 128 * 64 * 2 // 32  # y alone: what is normalised stays
    row = counts("rotary_embedding", heads=2, length=64, head_dim=64)
    assert row["conflicts"] == row["shared_load_instructions"] == row["shared_store_instructions"] == 0
    assert row["global_sectors_st"] == HALVES * 2 * 64 * 64 * 2 // 32


def test_warps_that_share_rows_exchange_a_value_per_row_and_sum():
    """Each warp of 64 columns stores 16 sums with two stores. With two loads it loads those of four warps."""
    blocks, warps = 128 // 16, 384 // 64
    row = counts("norm_gate", rows=128, cols=384)
    sums = 2 * blocks * warps  # of x, and of the squared differences from its mean
    assert row["shared_store_instructions"] == row["wavefronts_st"] == 2 * sums
    assert row["shared_load_instructions"] == row["wavefronts_ld"] == 2 * sums * 2
    # x and gate are read once, in whole sectors; each quarter of a warp reads weight and bias for itself.
    assert row["global_sectors_ld"] == (2 * 128 * 384 * 2 + 4 * blocks * 2 * 384 * 4) // 32
    assert row["global_sectors_st"] == 128 * 384 * 2 // 32
    row = counts("norm_gate_backward", rows=128, cols=384)
    matrices, sectors = 2 * 128 * 384 * 2 // 32, 2 * 384 * 4 // 32
    # dx and d_gate; a row of d_weight and d_bias per block; and their sums.
    assert row["global_sectors_st"] == matrices + blocks * sectors + sectors
    assert row["conflicts"] == 0


def test_two_blocks_exchange_a_value_per_row():
    """Each of 128 / 16 warps of either block sends 16 sums twice, with two st.async, and loads as many."""
    problem = get_operation("layer_norm").problem(rows=128, cols=64)
    result = evaluate("layer_norm_cluster", problem, backend="emulator")
    assert result.passed, result.text
    [launch] = result.execution.launches
    executed = launch.instructions()
    sends = executed["ptx"].str.startswith("st.async")
    transfers = 2 * (128 // 16) * 2 * 2
    assert executed[sends]["executed"].sum() == transfers
    assert result.row["shared_load_instructions"] == result.row["wavefronts_ld"] == transfers
    assert result.row["conflicts"] == result.row["shared_store_instructions"] == 0
    alone = counts("layer_norm", rows=128, cols=64)
    assert result.row["global_sectors_ld"] == alone["global_sectors_ld"]  # each element once
