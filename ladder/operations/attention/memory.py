"""The memory that attention needs."""

from __future__ import annotations

from ladder.operations.attention.problem import Problem
from ladder.operations.base import DTYPE_BYTES

_FLOAT64 = 8
#: The number of a head's logits that the reference processes at once, or one row if that is longer. In
#: float64 it holds the logits, the weights, their bounds, intermediate values, and the previous rows' logits.
LOGITS_AT_ONCE = 2**22
_COPIES_OF_LOGITS = 20


def needed_bytes(problem: Problem) -> int:
    """The peak number of bytes while drawing q, k and v, running a stage on them and checking it."""
    fp32, size = DTYPE_BYTES["f32"], DTYPE_BYTES[problem.dtype or "f32"]
    q = problem.batch * problem.heads * problem.q_len * problem.head_dim
    kv = 2 * problem.batch * problem.num_kv_heads * problem.kv_len * problem.head_dim
    rows = problem.batch * problem.heads * problem.q_len
    drawing = fp32 * (q + kv) + (size * (q + kv) if size != fp32 else 0)
    # The inputs and two copies, the outputs of three runs, and the reference: o, the limits of its errors and
    # their deviations.
    held = size * 3 * (2 * q + kv) + fp32 * 3 * rows + _FLOAT64 * (3 * q + rows)
    row = max(problem.kv_len, problem.head_dim)
    logits = _COPIES_OF_LOGITS * min(problem.q_len * row, max(LOGITS_AT_ONCE, row))
    one_head = 2 * problem.kv_len * problem.head_dim + logits
    compared = 5 * q  # the errors, and their shares of the limits, which Reference.deviation copies
    return max(drawing, held + _FLOAT64 * max(one_head, compared))
