"""torch's own backward pass of attention, as a baseline for speeds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ladder.operations.attention.problem import Problem

_BACKENDS = {
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch cuDNN": SDPBackend.CUDNN_ATTENTION,
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def torch_runs(problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Callable[[Any], Any]]:
    """Functions that compute only the gradients, by backend.

    The first run on a set of inputs also does the forward pass, and must not be timed.
    """
    found: dict[str, Callable[[Any], Any]] = {}
    for name, backend in _BACKENDS.items():
        run = _Gradients(problem, backend)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns why a backend does not take the problem
                run(inputs)
                torch.cuda.synchronize()
        except RuntimeError:
            continue
        found[name] = run
    return found


class _Gradients:
    """Caches the forward pass of each set of inputs, by the address of its q."""

    def __init__(self, problem: Problem, backend: SDPBackend) -> None:
        self._problem = problem
        self._backend = backend
        self._forward: dict[int, tuple[Tensor, list[Tensor]]] = {}

    def __call__(self, inputs: Mapping[str, Any]) -> Tensor:
        """Computes all three gradients and returns dq."""
        place = inputs["q"].data_ptr()
        if place not in self._forward:
            q, k, v = (inputs[name].detach().requires_grad_() for name in "qkv")
            with sdpa_kernel(self._backend):
                o = F.scaled_dot_product_attention(
                    q,
                    k,
                    v,
                    is_causal=self._problem.is_causal,
                    scale=self._problem.scale,
                    enable_gqa=self._problem.heads > self._problem.num_kv_heads,
                )
            self._forward[place] = o, [q, k, v]
        o, leaves = self._forward[place]
        return torch.autograd.grad(o, leaves, inputs["d_o"], retain_graph=True)[0]
