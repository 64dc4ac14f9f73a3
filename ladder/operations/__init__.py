"""The operations that stages compute: problems, inputs, float64 references with bounds, shapes to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.operations.attention.inputs import (
        KINDS,
        TORCH_DTYPES,
        make_inputs,
    )
    from ladder.operations.attention.problem import INPUTS, LARGEST_SCALE, Problem
    from ladder.operations.attention.reference import AttentionReference, attention_float64, reference
    from ladder.operations.attention.shapes import (
        AXES,
        CALIBRATION_PROBLEMS,
        DEFAULT_GPU_PROBLEM,
        DEFAULT_PROBLEM,
        boundary_problems,
        full_problems,
        pairwise_problems,
        random_problems,
    )
    from ladder.operations.attention.tensors import problem_of_tensors
    from ladder.operations.attention_backward.problem import (
        BackwardProblem,
    )
    from ladder.operations.base import (
        DTYPES,
        LARGEST_SIZE,
        AnyProblem,
        Deviation,
        Huge,
        Operation,
        Output,
        Reference,
        Tensors,
        parse_dtype,
        torch_dtypes,
    )
    from ladder.operations.hstu.mask import hstu_mask
    from ladder.operations.hstu.operation import HstuBackwardProblem
    from ladder.operations.hstu.problem import HstuProblem
    from ladder.operations.hstu.tensors import HstuPages, hstu_problem_of_tensors
    from ladder.operations.norm_gate import NORM_GATE_EPSILON
    from ladder.operations.registry import DEFAULT_OPERATION, OPERATIONS, get_operation, operation_of

_NAMES = {
    "BackwardProblem": "attention_backward.problem",
    "AnyProblem": "base",
    "AttentionReference": "attention.reference",
    "DEFAULT_OPERATION": "registry",
    "DTYPES": "base",
    "Deviation": "base",
    "HstuBackwardProblem": "hstu.operation",
    "Huge": "base",
    "HstuPages": "hstu.tensors",
    "HstuProblem": "hstu.problem",
    "INPUTS": "attention.problem",
    "LARGEST_SCALE": "attention.problem",
    "LARGEST_SIZE": "base",
    "NORM_GATE_EPSILON": "norm_gate",
    "OPERATIONS": "registry",
    "Operation": "base",
    "Output": "base",
    "Problem": "attention.problem",
    "Reference": "base",
    "Tensors": "base",
    "get_operation": "registry",
    "hstu_mask": "hstu.mask",
    "hstu_problem_of_tensors": "hstu.tensors",
    "operation_of": "registry",
    "parse_dtype": "base",
    "problem_of_tensors": "attention.tensors",
    "torch_dtypes": "base",
    "AXES": "attention.shapes",
    "CALIBRATION_PROBLEMS": "attention.shapes",
    "DEFAULT_GPU_PROBLEM": "attention.shapes",
    "DEFAULT_PROBLEM": "attention.shapes",
    "KINDS": "attention.inputs",
    "TORCH_DTYPES": "attention.inputs",
    "attention_float64": "attention.reference",
    "boundary_problems": "attention.shapes",
    "full_problems": "attention.shapes",
    "make_inputs": "attention.inputs",
    "pairwise_problems": "attention.shapes",
    "random_problems": "attention.shapes",
    "reference": "attention.reference",
}

__getattr__ = door(__name__, _NAMES)
