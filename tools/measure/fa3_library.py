"""FlashAttention-3 as a library of operators, without its Python interface."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ladder.errors import LadderError
from ladder.operations import BackwardProblem, Problem

#: The arguments that are passed to the operators: by position, by name.
FORWARD = (("q", "k", "v"), ("out", "num_splits", "softmax_scale", "is_causal"))
BACKWARD = (
    ("dout", "q", "k", "v", "out", "softmax_lse", "dq", "dk", "dv"),
    ("softmax_scale", "is_causal"),
)
#: Builds that were measured, by the number of tensors that their bwd returns. Both take the same arguments.
BUILDS = {8: "xformers 0.0.34", 5: "commit 0251105a"}


class FlashAttention3:
    """The operators ``fwd`` and ``bwd`` of a ``_C.so``. A build may register them under ``flash_attn_3`` or
    under a name that begins so, to be loaded beside another.
    """

    def __init__(self, library: Path) -> None:
        load(library)
        registered = [name for name in torch._C._dispatch_get_all_op_names() if is_forward(name)]
        if not registered:
            raise LadderError(f"{library} registers no operator flash_attn_3::fwd")
        self._forward = operator(registered[0], FORWARD)
        self._backward = operator(registered[0].replace("::fwd", "::bwd"), BACKWARD)
        returned = len(self._backward._schema.returns)
        self.version = "operators as in " + BUILDS.get(returned, "an unknown build")

    def contenders(
        self, problem: Problem, inputs: Mapping[str, Any]
    ) -> Iterator[tuple[str, str, Callable[[], Callable[[], Sequence[Tensor]]]]]:
        """Name, version and maker of a run. Gradients of grouped heads are left out: they have kernels of
        their own, and a library that was built without them ends the process when they are launched.
        """
        if not isinstance(problem, BackwardProblem):
            yield "FlashAttention-3", self.version, lambda: self._run_forward(problem, inputs)
        elif problem.heads == problem.num_kv_heads:
            yield "FlashAttention-3", self.version, lambda: self._run_backward(problem, inputs)

    def _run_forward(self, problem: Problem, inputs: Mapping[str, Any]) -> Callable[[], Sequence[Tensor]]:
        q, k, v = (inputs[name].transpose(1, 2).contiguous() for name in "qkv")
        out = torch.empty_like(q)
        choices = choices_of(problem)

        def run() -> Sequence[Tensor]:
            self._forward(q, k, v, out=out, num_splits=1, **choices)
            return [out.transpose(1, 2)]

        return run

    def _run_backward(self, problem: Problem, inputs: Mapping[str, Any]) -> Callable[[], Sequence[Tensor]]:
        q, k, v, d_o = (inputs[name].transpose(1, 2).contiguous() for name in ("q", "k", "v", "d_o"))
        out = torch.empty_like(q)
        choices = choices_of(problem)
        lse = self._forward(q, k, v, out=out, num_splits=1, **choices)[1]
        gradients = [torch.empty_like(x) for x in (q, k, v)]

        def run() -> Sequence[Tensor]:
            self._backward(d_o, q, k, v, out, lse, *gradients, **choices)
            return [x.transpose(1, 2) for x in gradients]

        return run


def choices_of(problem: Problem) -> dict[str, Any]:
    return {"softmax_scale": 1 / math.sqrt(problem.head_dim), "is_causal": problem.is_causal}


def load(library: Path) -> None:
    """Loads the library, and before it the CUDA runtime that lies beside it, if one does."""
    for runtime in sorted(library.parent.glob("libcudart.so.*")):
        loaded(runtime, partial(ctypes.CDLL, mode=ctypes.RTLD_GLOBAL))
    loaded(library, torch.ops.load_library)


def loaded(path: Path, load: Callable[[str], object]) -> None:
    try:
        load(str(path))
    except OSError as failure:
        raise LadderError(
            f"{path} cannot be loaded: {failure.__cause__ or failure}",
            "It needs torch for CUDA, and beside it libcudart.so of the CUDA that it was built for.",
        ) from failure


def is_forward(name: str) -> bool:
    return name.startswith("flash_attn_3") and name.endswith("::fwd")


def operator(name: str, arguments: tuple[Sequence[str], Sequence[str]]) -> Any:
    """The operator of this name, whose arguments are those that are passed to it here."""
    namespace, short = name.split("::")
    try:
        found = getattr(getattr(torch.ops, namespace), short).default
    except AttributeError as failure:
        raise LadderError(f"FlashAttention-3's library registers no operator {name}") from failure
    names = [argument.name for argument in found._schema.arguments]
    by_position, by_name = arguments
    if names[: len(by_position)] != [*by_position] or not {*by_name} <= {*names}:
        expected = ", ".join([*by_position, *by_name])
        raise LadderError(f"{name} takes ({', '.join(names)}); it is called with ({expected})")
    return found
