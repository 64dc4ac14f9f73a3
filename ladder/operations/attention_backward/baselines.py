"""torch's own backward pass of attention, as a baseline for speeds."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from ladder.operations.attention.baselines import Inputs, Run, attend, runs_on
from ladder.operations.attention.problem import Problem


def torch_runs(problem: Problem, inputs: Inputs) -> dict[str, Run]:
    """Functions that compute only the gradients, by backend.

    The first run on a set of inputs also does the forward pass, and must not be timed.
    """
    return runs_on(inputs, lambda backend: _Gradients(problem, backend))


class _Gradients:
    """Caches the forward pass of each set of inputs, by the address of its q."""

    def __init__(self, problem: Problem, backend: SDPBackend) -> None:
        self._problem = problem
        self._backend = backend
        self._forward: dict[int, tuple[Tensor, list[Tensor]]] = {}

    def __call__(self, inputs: Inputs) -> Tensor:
        """Computes all three gradients and returns dq."""
        place = inputs["q"].data_ptr()
        if place not in self._forward:
            leaves = [inputs[name].detach().requires_grad_() for name in "qkv"]
            self._forward[place] = attend(self._problem, self._backend, *leaves), leaves
        o, leaves = self._forward[place]
        return torch.autograd.grad(o, leaves, inputs["d_o"], retain_graph=True)[0]
