"""The HSTU layer as a torch module."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ladder.call.gating import norm_gate
from ladder.call.hstu import hstu_attention
from ladder.errors import InvalidProblem
from ladder.operations import NORM_GATE_EPSILON, norm_gate_takes_cols


class HSTULayer(nn.Module):
    """An HSTU layer ("Actions Speak Louder than Words", Zhai et al., 2024, section 3.2) with its residual.

        u, v, q, k = silu(norm(x) W)              heads of head_dim each
        o          = hstu_attention(q, k, v)      with a learned bias a distance
        x         += (norm(o) * u) W_out

    Parameters are fp32; attention is computed in ``dtype``. If it has 16 bits and ``heads * head_dim`` is a
    multiple of 64, at most 2,048, :func:`ladder.norm_gate` computes the norm and the gate in it. Otherwise
    torch computes them in the dtype of x.

    With ``bias_distance``, logits have a learned bias for the distance of query and key, which is the same
    for all distances from ``bias_distance`` on. ``bias_heads`` is 1 for a bias that all heads share, or
    ``heads``. ``attention`` is :func:`ladder.hstu_attention` or a function with the same signature.

    Raises :class:`InvalidProblem` for sizes that do not fit.

    >>> layer = ladder.HSTULayer(64, heads=2, head_dim=32)
    >>> layer(torch.randn(150, 64), torch.tensor([0, 100, 150], dtype=torch.int32)).shape
    torch.Size([150, 64])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        bias_distance: int = 0,
        bias_heads: int = 1,
        target_group_size: int = 1,
        dtype: torch.dtype = torch.bfloat16,
        attention: Callable[..., Tensor] = hstu_attention,
    ) -> None:
        super().__init__()
        if min(dim, heads, head_dim) < 1 or bias_distance < 0:
            raise InvalidProblem(
                f"dim {dim}, heads {heads} and head_dim {head_dim} must be 1 or more, "
                f"bias_distance {bias_distance} 0 or more"
            )
        if bias_heads not in (1, heads):
            raise InvalidProblem(f"bias_heads is {bias_heads}; it must be 1 or the heads, {heads}")
        self.heads, self.head_dim = heads, head_dim
        self.target_group_size, self.dtype = target_group_size, dtype
        self.attention = attention
        self.norm = nn.LayerNorm(dim)
        self.project = nn.Linear(dim, 4 * heads * head_dim)
        self.bias = RelativeBias(bias_heads, bias_distance) if bias_distance else None
        self._is_fused = norm_gate_takes_cols(heads * head_dim) and dtype in (torch.float16, torch.bfloat16)
        self.attention_norm = nn.LayerNorm(heads * head_dim, eps=NORM_GATE_EPSILON)
        self.output = nn.Linear(heads * head_dim, dim)

    def forward(
        self,
        x: Tensor,
        cu_seqlens: Tensor,
        *,
        num_contexts: Tensor | None = None,
        num_targets: Tensor | None = None,
    ) -> Tensor:
        """Maps x (total, dim), the concatenated sequences given by ``cu_seqlens``, to (total, dim)."""
        parts = F.silu(self.project(self.norm(x))).view(len(x), 4, self.heads, self.head_dim)
        u = parts[:, 0].flatten(1)
        v, q, k = parts[:, 1:].to(self.dtype).unbind(1)
        o = self.attention(
            q,
            k,
            v,
            cu_seqlens,
            rab=None if self.bias is None else self.bias(cu_seqlens).to(self.dtype),
            num_contexts=num_contexts,
            num_targets=num_targets,
            target_group_size=self.target_group_size,
        )
        residual: Tensor = x + self.output(self._gated(o.flatten(1), u, x.dtype))
        return residual

    def _gated(self, o: Tensor, u: Tensor, dtype: torch.dtype) -> Tensor:
        """norm(o) * u in ``dtype``."""
        norm = self.attention_norm
        if not self._is_fused:
            gated: Tensor = norm(o.to(dtype)) * u
            return gated
        return norm_gate(o.to(self.dtype), u.to(self.dtype), norm.weight.float(), norm.bias.float()).to(dtype)


class RelativeBias(nn.Module):
    """One learned number per head and distance of two positions, clamped to -distance .. distance."""

    def __init__(self, heads: int, distance: int) -> None:
        super().__init__()
        self.distance = distance
        self.weight = nn.Parameter(torch.zeros(heads, 2 * distance + 1))

    def forward(self, cu_seqlens: Tensor) -> Tensor:
        """Returns the bias (B, heads, N, N), N the longest sequence: the same for each of the B sequences."""
        batch, longest = len(cu_seqlens) - 1, int(cu_seqlens.diff().max())
        position = torch.arange(longest, device=cu_seqlens.device)
        apart = (position[:, None] - position).clamp(-self.distance, self.distance)
        return self.weight[:, apart + self.distance].expand(batch, -1, -1, -1)
