"""Attention's gradients in float64, and bounds on the errors of a correct kernel.

A kernel recomputes the weights P from the logits and lse in fp32, rounds P and dS to 16 bits for the tensor
cores, and sums in fp32. torch's CPU backward pass does the same in another order. So each gradient's bound is

    2 * (error of torch's gradient, in the same dtype)
    + u_T * max |gradient|                                   its last rounding, which torch's may miss by luck
    + 2^-22 * (1 + max |s|) * (largest sum of |terms|)       fp32: what logits and sums err by

u_T is the largest rounding error relative to the number: 2^-11 in f16, 2^-8 in bf16, 2^-24 in fp32. The terms
of dV_j are P_ij dO_i, those of dQ_i are scale dS_ij K_j, those of dK_j scale dS_ij Q_i, with |dO| |V| +
|delta| in place of the difference dP - delta, whose parts may cancel. For dK and dV, the sum runs over all
heads of a group, so the bound grows with the group's size, as does the error of an fp32 sum. A logit s has an
error of a few roundings of |s|, which is the weight's relative error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ladder.operations.attention.memory import LOGITS_AT_ONCE
from ladder.operations.base import Reference, largest

_ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_FP32 = 2.0**-22
NAMES = ("dq", "dk", "dv")


def reference(inputs: Mapping[str, Any], *, is_causal: bool, scale: float) -> Reference:
    """Computes the gradients dq (B, H, N, d), dk and dv (B, Hkv, M, d) of these inputs, on their device.

    ``inputs`` holds q, k, v, d_o and d_lse, which may be None; o and lse, which stages also get, are
    recomputed in float64.
    """
    q, k, v, d_o, d_lse = (inputs[name] for name in ("q", "k", "v", "d_o", "d_lse"))
    gradients = {name: torch.zeros(x.shape, dtype=torch.float64, device=x.device) for name, x in _like(q, k)}
    sizes = {name: torch.zeros_like(x) for name, x in gradients.items()}
    largest_logit = 0.0
    heads, kv_len = q.shape[1], k.shape[2]
    keys = torch.arange(kv_len, device=q.device)
    step = max(1, LOGITS_AT_ONCE // max(kv_len, q.shape[3]))
    for b in range(q.shape[0]):
        for h in range(heads):
            of_kv = b, h * k.shape[1] // heads
            k64, v64 = k[of_kv].double(), v[of_kv].double()
            for first in range(0, q.shape[2], step):
                rows = b, h, slice(first, first + step)
                q64, d_o64 = q[rows].double(), d_o[rows].double()
                s = q64 @ k64.T * scale
                if is_causal:
                    queries = torch.arange(first, first + len(q64), device=q.device)
                    s.masked_fill_(keys > queries[:, None], -math.inf)
                p = torch.softmax(s, dim=-1)
                dp = d_o64 @ v64.T
                delta = (p * dp).sum(-1, keepdim=True)
                if d_lse is not None:
                    delta -= d_lse[rows].double()[:, None]
                ds = scale * p * (dp - delta)
                ds_size = abs(scale) * p * (d_o64.abs() @ v64.abs().T + delta.abs())
                gradients["dq"][rows] = ds @ k64
                gradients["dk"][of_kv] += ds.T @ q64
                gradients["dv"][of_kv] += p.T @ d_o64
                sizes["dq"][rows] = ds_size @ k64.abs()
                sizes["dk"][of_kv] += ds_size.T @ q64.abs()
                sizes["dv"][of_kv] += p.T @ d_o64.abs()
                largest_logit = max(largest_logit, largest(s[s > -math.inf]))
    torch_gradients = _torch_gradients(q, k, v, d_o, d_lse, is_causal, scale)
    bounds = {}
    for name, exact in gradients.items():
        torch_error = largest(torch_gradients[name].double() - exact.cpu())
        if not math.isfinite(torch_error):
            torch_error = 0.0  # a failed baseline must not loosen the bound
        fp32 = _FP32 * (1 + largest_logit) * largest(sizes[name])
        bounds[name] = 2 * torch_error + _ROUNDING[q.dtype] * largest(exact) + fp32
    return Reference(gradients, bounds)


def _like(q: Tensor, k: Tensor) -> tuple[tuple[str, Tensor], ...]:
    return (("dq", q), ("dk", k), ("dv", k))


def _torch_gradients(
    q: Tensor, k: Tensor, v: Tensor, d_o: Tensor, d_lse: Tensor | None, is_causal: bool, scale: float
) -> dict[str, Tensor]:
    """Computes torch's own gradients on the CPU, in the dtype of the tensors.

    torch masks the logits before it scales them, so a negative scale with a causal mask would attend to
    masked keys: the sign goes into q instead, where it is exact. With a scale of 0, dq and dk are 0. The
    gradient of lse goes through logits that are computed separately and rounded to the dtype.
    """
    leaves = [x.detach().cpu().requires_grad_() for x in (q, k, v)]
    signed = -leaves[0] if scale < 0 else leaves[0] * 0 if scale == 0 else leaves[0]
    group = q.shape[1] // k.shape[1]
    k_of_heads, v_of_heads = (x.repeat_interleave(group, dim=1) for x in leaves[1:])
    factor = abs(scale) or 1.0
    o = F.scaled_dot_product_attention(signed, k_of_heads, v_of_heads, is_causal=is_causal, scale=factor)
    outputs, gradients = [o], [d_o.cpu()]
    if d_lse is not None:
        s = (signed @ k_of_heads.mT).float() * factor
        if is_causal:
            s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)
        outputs.append(torch.logsumexp(s, dim=-1))
        gradients.append(d_lse.cpu())
    return dict(zip(NAMES, torch.autograd.grad(outputs, leaves, gradients), strict=True))
