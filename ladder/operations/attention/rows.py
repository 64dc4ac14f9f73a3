"""Query rows of attention in float64, and the rounding errors of what kernels compute them with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ladder.operations.attention.memory import LOGITS_AT_ONCE
from ladder.operations.attention.problem import band

U = 2.0**-24
#: Relative rounding errors of the dtype of weights and o; below 2^-14, f16's is absolute.
ROUNDING = {torch.float32: 0.0, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
F16_SUBNORMAL = 2.0**-25
#: The smallest normal number of f32 and bf16.
SMALLEST = 2.0**-126
#: The relative error of tanh.approx.
TANH_ERROR = 2.0**-11
#: The number of standard deviations that a normal variable practically never exceeds.
DEVIATIONS = 7.0


@dataclass(frozen=True)
class Rows:
    """Query rows of some kv heads in float64: q (h, n, d), k and v (h, M, d), logits s (h, n, M), -inf where
    masked; and where there are sinks, that of each row (h, n, 1). If ``merged``, a kernel may compute the
    keys in parts. If ``scaled``, k and v are products of a factor per head and elements of 8 bits.

    The rows of all query heads that read a kv head follow each other; heads are numbered across the batch.
    """

    heads: slice
    rows: slice
    kv_heads: int
    q: Tensor
    k: Tensor
    v: Tensor
    s: Tensor
    softcap: float | None
    sink: Tensor | None
    merged: bool
    scaled: bool

    def of(self, tensor: Tensor) -> Tensor:
        """The part (h, n, ...) of a tensor (B, H, N, ...), which it shares memory with."""
        return tensor.reshape(self.kv_heads, -1, *tensor.shape[3:])[self.heads, self.rows]

    def of_keys(self, tensor: Tensor) -> Tensor:
        """The part (h, M, ...) of a tensor (B, Hkv, M, ...), which it shares memory with."""
        return tensor.flatten(0, 1)[self.heads]

    @cached_property
    def lse(self) -> Tensor:
        """(h, n, 1); -inf of a row that sees no key."""
        of_keys = torch.logsumexp(self.s, dim=-1, keepdim=True)
        return of_keys if self.sink is None else torch.logaddexp(of_keys, self.sink)

    @cached_property
    def finite_lse(self) -> Tensor:
        """(h, n, 1); 0 of a row that sees no key."""
        return _finite(self.lse)

    @cached_property
    def m(self) -> Tensor:
        """The largest logit (h, n, 1); 0 of a row that sees no key."""
        of_keys = self.s.amax(-1, keepdim=True)
        return _finite(of_keys if self.sink is None else torch.maximum(of_keys, self.sink))

    @cached_property
    def n(self) -> Tensor:
        """The number of terms of l (h, n, 1), at least 1."""
        seen = (self.s > -math.inf).sum(-1, keepdim=True).double()
        return (seen if self.sink is None else seen + 1).clamp_min(1)

    @cached_property
    def p(self) -> Tensor:
        """The weights (h, n, M)."""
        return torch.exp(self.s - self.finite_lse)

    def logit_errors(self, of_products: Tensor, others: Tensor) -> Tensor:
        """e_j (h, n, M), from 5/4 t d u A_j or what stands for it, and the m or lse that is subtracted."""
        sizes = self.s.abs().nan_to_num(posinf=0)
        of_tanh = 0.0 if self.softcap is None else TANH_ERROR
        roundings = 7 if self.scaled else 6
        errors = of_products + of_tanh * sizes + U * (roundings * sizes + 6 * others.abs() + 4)
        if not self.merged:
            return errors
        return errors + U * (10 * sizes + 10 * self.finite_lse.abs() + 8 * self.n.log() + 10)

    def error_of_sums(self, e_j: Tensor) -> Tensor:
        """E (h, n, 1)."""
        of_keys = (self.p * e_j).sum(-1, keepdim=True)
        if self.sink is None:
            return of_keys
        return of_keys + torch.exp(self.sink - self.lse) * U * (6 * self.sink.abs() + 6 * self.m.abs() + 4)

    @cached_property
    def o(self) -> Tensor:
        """(h, n, d)."""
        return self.p @ self.v


def _finite(x: Tensor) -> Tensor:
    """0 where x is -inf."""
    return x.masked_fill(x == -math.inf, 0.0)


def query_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    is_causal: bool,
    scale: float,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    merged: bool = False,
    scaled: bool = False,
) -> Iterator[Rows]:
    """Yields all query rows, in chunks that fit into memory; the arguments are those of a problem, and
    ``merged`` and ``scaled`` those of :class:`Rows`.
    """
    kv_heads, kv_len, q_len = k.shape[0] * k.shape[1], k.shape[2], q.shape[2]
    rows = q.shape[0] * q.shape[1] // kv_heads * q_len
    row_step = max(1, min(rows, LOGITS_AT_ONCE // max(kv_len, q.shape[3])))
    head_step = max(1, LOGITS_AT_ONCE // (row_step * max(kv_len, q.shape[3])))
    keys, queries = torch.arange(kv_len, device=q.device), torch.arange(rows, device=q.device) % q_len
    begin, end = band(q_len, kv_len, is_causal, window)
    of_rows = None if sinks is None else sinks[None, :, None].expand(q.shape[:3]).reshape(kv_heads, rows, 1)
    for head in range(0, kv_heads, head_step):
        heads = slice(head, head + head_step)
        k64, v64 = (x.flatten(0, 1)[heads].double() for x in (k, v))
        for row in range(0, rows, row_step):
            part = slice(row, row + row_step)
            q64 = q.reshape(kv_heads, rows, -1)[heads, part].double()
            s = q64 @ k64.mT * scale
            if softcap is not None:
                s = softcap * torch.tanh(s / softcap)
            if begin > -q_len:
                s.masked_fill_(keys < queries[part, None] + begin, -math.inf)
            if end < kv_len:
                s.masked_fill_(keys >= queries[part, None] + end, -math.inf)
            sink = None if of_rows is None else of_rows[heads, part].double()
            yield Rows(heads, part, kv_heads, q64, k64, v64, s, softcap, sink, merged, scaled)
