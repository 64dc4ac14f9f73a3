"""Attention computed by a rung, called like torch's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor

from ladder.functional import operators
from ladder.functional.runs import AUTO, require_backward
from ladder.operations import BackwardProblem, problem_of_tensors
from ladder.stages import format_options


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    stage: str = AUTO,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    backward: str = AUTO,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention: query (B, H, N, d), key and value (B, Hkv, M, d) -> (o, lse).

    o (B, H, N, d) has query's dtype; lse (B, H, N), log(sum(exp(scaled logits))) of each row, is fp32.
    CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU. The arguments are
    those of ``torch.nn.functional.scaled_dot_product_attention``; H may be a multiple of Hkv with
    ``enable_gqa``. ``stage`` names the rung; "auto" is the highest, and so the fastest, that takes the
    problem on this GPU, or as ``arch``.

    Both outputs are differentiable once. ``backward`` names the rung that computes the gradients, or is
    "auto".

    Raises :class:`InvalidProblem` for mismatched tensors, and :class:`UnsupportedProblem` if the stage does
    not take the problem, or if a tensor requires a gradient that no stage computes.
    """
    # While torch.compile traces, only call the operator; it checks its arguments when it runs.
    if not torch.compiler.is_compiling():
        problem = problem_of_tensors(query, key, value, is_causal, scale, enable_gqa)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value)):
            require_backward(BackwardProblem(**asdict(problem)))
    outputs: tuple[Tensor, Tensor] = operators.attention(
        query,
        key,
        value,
        is_causal,
        scale,
        enable_gqa,
        stage,
        arch or "",
        format_options(options or {}),
        backward,
    )
    return outputs
