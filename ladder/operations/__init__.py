"""The operations that stages compute: problems, inputs, float64 references with bounds, shapes to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.operations.addresses import (
        LARGEST_OFFSET,
        address_of,
        extent_bytes,
        in_memory,
        require_memory,
    )
    from ladder.operations.attention.inputs import KINDS, TORCH_DTYPES, make_inputs
    from ladder.operations.attention.problem import INPUTS, LARGEST_SCALE, USUAL_HEAD_DIMS, Problem, value_dim
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
    from ladder.operations.attention.tensors import (
        check_tensors,
        problem_of_sequences,
        problem_of_tensors,
    )
    from ladder.operations.attention_backward.problem import BackwardProblem
    from ladder.operations.base import (
        DTYPE_BYTES,
        DTYPES,
        LARGEST_SIZE,
        AnyProblem,
        Deviation,
        Huge,
        Operation,
        Output,
        Reference,
        Spread,
        Tensors,
        parse_dtype,
        parse_sizes,
        torch_dtypes,
    )
    from ladder.operations.decoding.problem import DecodingProblem
    from ladder.operations.decoding.tensors import check_descales, check_lengths, problem_of_cache
    from ladder.operations.hstu.mask import check_window, hstu_mask
    from ladder.operations.hstu.operation import HstuBackwardProblem
    from ladder.operations.hstu.problem import HstuProblem
    from ladder.operations.hstu.tensors import (
        HstuPages,
        hstu_problem_of_tensors,
        padded_bias,
        require_strided,
    )
    from ladder.operations.norm_gate import (
        NORM_GATE_EPSILON,
        NormGateBackwardProblem,
        norm_gate_problem_of_tensors,
        norm_gate_takes_cols,
    )
    from ladder.operations.registry import DEFAULT_OPERATION, OPERATIONS, get_operation, operation_of
    from ladder.operations.terms import KEYS, QUERIES

__getattr__ = door(__name__)
