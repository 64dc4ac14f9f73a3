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
Run = Callable[[Inputs], Tensor]
_BACKENDS = {
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch cuDNN": SDPBackend.CUDNN_ATTENTION,
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def torch_runs(problem: Problem, inputs: Inputs) -> dict[str, Run]:
    """torch's attention by backend, for the backends that take the problem, which is tried on ``inputs``."""
    return runs_on(
        inputs, lambda backend: lambda given: attend(problem, backend, given["q"], given["k"], given["v"])
    )


def runs_on(inputs: Inputs, run_of: Callable[[SDPBackend], Run]) -> dict[str, Run]:
    """``run_of`` each of torch's backends, without those that refuse the inputs."""
    found: dict[str, Run] = {}
    for name, backend in _BACKENDS.items():
        run = run_of(backend)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns why a backend does not take the problem
                run(inputs)
                torch.cuda.synchronize()
        except RuntimeError:
            continue
        found[name] = run
    return found


def attend(problem: Problem, backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's attention by this backend alone."""
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            is_causal=problem.is_causal,
            scale=problem.scale,
            enable_gqa=problem.heads > problem.num_kv_heads,
        )
