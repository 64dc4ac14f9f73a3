"""Attention in float64, and how far from it a kernel may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Reference:
    """The exact result with the bounds a stage's outputs are held to.

    o (B, H, N, d) and lse (B, H, N) are float64, on the inputs' device. A stage passes when
    max |o - ref| <= error_bound = 2 * (error of torch's CPU attention in the same dtype)
    + 2^-24 * (1 + max |s|) * max |v|, s the scaled logits, and
    max |lse - ref| <= lse_bound = 1e-5 + 2^-22 * max |s|.
    """

    o: Tensor
    lse: Tensor
    error_bound: float
    lse_bound: float

    def error(self, o: Tensor) -> float:
        """max |o - ref|; NaN if o holds one."""
        return _largest(o.double() - self.o)

    def lse_error(self, lse: Tensor) -> float:
        """max |lse - ref|; NaN if lse holds one."""
        return _largest(lse.double() - self.lse)


def attention_float64(
    q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor, float]:
    """o, lse and the largest |scaled logit| that a query sees, in float64, one head at a time."""
    batch, heads, q_len, _ = q.shape
    group = heads // k.shape[1]
    o = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
    mask = None
    if is_causal:
        mask = torch.ones(q_len, k.shape[2], dtype=torch.bool, device=q.device).tril()
    largest = 0.0
    for b in range(batch):
        for h in range(heads):
            s = q[b, h].double() @ k[b, h // group].double().T * scale
            if mask is not None:
                s = s.masked_fill(~mask, -math.inf)
            largest = max(largest, _largest(s if mask is None else s[mask]))
            lse[b, h] = torch.logsumexp(s, dim=-1)
            o[b, h] = torch.exp(s - lse[b, h, :, None]) @ v[b, h // group].double()
    return o, lse, largest


def reference(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float) -> Reference:
    """The reference of q (B, H, N, d), k and v (B, Hkv, M, d) in the dtype that the stage will be given."""
    o, lse, largest = attention_float64(q, k, v, is_causal=is_causal, scale=scale)
    torch_error = _largest(_torch_cpu_attention(q, k, v, is_causal, scale).double() - o.cpu())
    if not math.isfinite(torch_error):
        torch_error = 0.0  # a reference that fails must not let anything pass
    return Reference(
        o=o,
        lse=lse,
        error_bound=2 * torch_error + 2.0**-24 * (1 + largest) * _largest(v),
        lse_bound=1e-5 + 2.0**-22 * largest,
    )


def _torch_cpu_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float) -> Tensor:
    """torch's own attention on the CPU.

    It masks the logits before it scales them, so with a causal mask and a scale of 0 it returns NaN, and with
    a negative one it attends to the keys it should not see (torch 2.13). The sign, or the zero, goes into q
    instead, where it is exact.
    """
    q, k, v = q.cpu(), k.cpu(), v.cpu()
    if scale <= 0:
        q, scale = (-q, -scale) if scale < 0 else (torch.zeros_like(q), 1.0)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)


def _largest(x: Tensor) -> float:
    return float(x.abs().max())
