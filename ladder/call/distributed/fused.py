"""The merge of :mod:`ladder.call.distributed.merging` as one Triton kernel, which reads everything once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Elements of o per block.
_ELEMENTS = 4096


@triton.jit
def merge_rows(  # type: ignore[no-untyped-def]
    o, o_batch, o_head, o_row,
    lse, lse_batch, lse_head, lse_row,
    part_o, part_o_batch, part_o_head, part_o_row,
    part_lse, part_lse_batch, part_lse_head, part_lse_row,
    heads, rows, blocks, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Merges ROWS rows of a head, which has so many blocks. Each tensor comes with its strides; those of the
    head dimension are 1.
    """
    block = tl.program_id(0)
    batch, head = block // blocks // heads, block // blocks % heads
    row = block % blocks * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    # Products in 64 bits: o may have more than 2^31 elements.
    batch, head, row = batch.to(tl.int64), head.to(tl.int64), row.to(tl.int64)
    lse += batch * lse_batch + head * lse_head + row * lse_row
    part_lse += batch * part_lse_batch + head * part_lse_head + row * part_lse_row
    own, other = tl.load(lse, is_row, 0.0), tl.load(part_lse, is_row, 0.0)
    saw_none = other == float("-inf")
    share = tl.where(saw_none, 0.0, tl.sigmoid(other - own))
    both = tl.maximum(own, other) + tl.log(1.0 + tl.exp(-tl.abs(own - other)))

    column, is_element = tl.arange(0, HEAD_DIM)[None, :], is_row[:, None]
    o += (batch * o_batch + head * o_head + row * o_row)[:, None] + column
    part_o += (batch * part_o_batch + head * part_o_head + row * part_o_row)[:, None] + column
    sum_o, its_o = tl.load(o, is_element, 0.0).to(tl.float32), tl.load(part_o, is_element, 0.0).to(tl.float32)
    # Several threads load the same element of lse, and one of them stores it.
    tl.debug_barrier()
    tl.store(o, sum_o + share[:, None] * (its_o - sum_o), is_element)
    tl.store(lse, tl.where(saw_none, own, both), is_row)


def merge_on_gpu(o: Tensor, lse: Tensor, part_o: Tensor, part_lse: Tensor) -> None:
    """:func:`ladder.distributed.merge` of CUDA tensors; d is a power of two, as of all rungs."""
    with torch.cuda.device(o.device):
        launch(o, lse, part_o, part_lse)


def launch(o: Tensor, lse: Tensor, part_o: Tensor, part_lse: Tensor) -> None:
    """Launches on the current device."""
    batch, heads, rows, head_dim = o.shape
    of_block = max(1, _ELEMENTS // head_dim)
    blocks = triton.cdiv(rows, of_block)
    given = [word for x in (o, lse, part_o, part_lse) for word in (x, *x.stride()[:3])]
    merge_rows[(batch * heads * blocks,)](*given, heads, rows, blocks, HEAD_DIM=head_dim, ROWS=of_block)
