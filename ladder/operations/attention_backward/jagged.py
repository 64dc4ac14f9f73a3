"""The gradients of sequences of different lengths, one after another in a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ladder.errors import UnsupportedProblem
from ladder.operations.attention.jagged import alone, tokens_of_sequences
from ladder.operations.attention.problem import Problem
from ladder.operations.attention_backward.reference import reference
from ladder.operations.base import Reference

_OF_QUERIES, _OF_KEYS = ("q", "o", "d_o"), ("k", "v")


def reference_of_sequences(problem: Problem, inputs: Mapping[str, Any]) -> Reference:
    """Computes the reference of each sequence for itself: dq (tokens, H, d), dk and dv (tokens, Hkv, d).

    The errors of each element have the limits of
    :func:`ladder.operations.attention_backward.reference.reference`. A query without keys, or a key without
    queries, has a gradient of 0. Raises :class:`UnsupportedProblem` for sinks.
    """
    if problem.sinks:
        raise UnsupportedProblem("there is no reference of the sinks' gradient over sequences")
    gradients, limits = (
        {f"d{name}": torch.zeros_like(inputs[name], dtype=torch.float64) for name in "qkv"} for _ in range(2)
    )
    for rows, keys in tokens_of_sequences(problem):
        d_lse = inputs["d_lse"]
        of_sequence = {
            **{name: alone(inputs[name][rows]) for name in _OF_QUERIES},
            **{name: alone(inputs[name][keys]) for name in _OF_KEYS},
            "d_lse": None if d_lse is None else d_lse[None, :, rows],
            "sinks": None,
        }
        found = reference(of_sequence, **problem.rules)
        for name, place in (("dq", rows), ("dk", keys), ("dv", keys)):
            gradients[name][place] = found.outputs[name][0].transpose(0, 1)
            limits[name][place] = torch.as_tensor(found.limits[name])[0].transpose(0, 1)
    return Reference(gradients, limits)
