"""The operations by name."""

from __future__ import annotations

import importlib
from functools import cache

from ladder.errors import InvalidProblem
from ladder.operations.base import AnyProblem, Operation

#: The module and the object of each operation.
_MODULES = {
    "attention": ("ladder.operations.attention.operation", "OPERATION"),
    "attention_backward": ("ladder.operations.attention_backward.operation", "OPERATION"),
    "decoding": ("ladder.operations.decoding.operation", "OPERATION"),
    "hstu": ("ladder.operations.hstu.operation", "FORWARD"),
    "hstu_backward": ("ladder.operations.hstu.operation", "BACKWARD"),
    "gemm": ("ladder.operations.gemm", "OPERATION"),
    "layer_norm": ("ladder.operations.layer_norm", "OPERATION"),
    "linear_attention": ("ladder.operations.linear_attention", "OPERATION"),
    "norm_gate": ("ladder.operations.norm_gate", "FORWARD"),
    "norm_gate_backward": ("ladder.operations.norm_gate", "BACKWARD"),
    "rotary": ("ladder.operations.rotary", "OPERATION"),
    "row_softmax": ("ladder.operations.row_softmax", "OPERATION"),
}
OPERATIONS = tuple(_MODULES)
#: The operation of stages that do not name one.
DEFAULT_OPERATION = "attention"


@cache
def get_operation(name: str) -> Operation:
    """The operation of that name. Raises KeyError."""
    module, attribute = _MODULES[name]
    found: Operation = getattr(importlib.import_module(module), attribute)
    return found


def operation_of(problem: AnyProblem) -> Operation:
    """The problem's operation. Raises :class:`InvalidProblem` for what is no problem."""
    if not hasattr(problem, "operation"):
        raise InvalidProblem(
            f"{problem!r} is not a problem", 'write ladder.Problem.parse("1,2,64,64,32"), for example'
        )
    return get_operation(problem.operation)
