"""torch's own attention, as a baseline for speeds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ladder.operations.attention.problem import Problem

Inputs = Mapping[str, Tensor]
_BACKENDS = {
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch cuDNN": SDPBackend.CUDNN_ATTENTION,
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def torch_runs(problem: Problem, inputs: Inputs) -> dict[str, Callable[[Inputs], Tensor]]:
    """torch's attention by backend, for the backends that take the problem, which is tried on ``inputs``."""
    group = problem.heads // problem.num_kv_heads
    found: dict[str, Callable[[Inputs], Tensor]] = {}
    for name, backend in _BACKENDS.items():

        def run(inputs: Inputs, backend: SDPBackend = backend) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(
                    inputs["q"],
                    inputs["k"],
                    inputs["v"],
                    is_causal=problem.is_causal,
                    scale=problem.scale,
                    enable_gqa=group > 1,
                )

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns why a backend does not take the problem
                run(inputs)
                torch.cuda.synchronize()
        except RuntimeError:
            continue
        found[name] = run
    return found
