"""Decoding in float64, with the bounds of attention whose keys are computed in parts and merged.

See :mod:`ladder.operations.attention.reference`; its ``merged`` adds the errors of a merge, and its
``scaled`` those of factors of keys and values in e4m3. The inputs are the rounded ones, so the errors of
rounding them to e4m3 are none of a stage's. Where a sequence has no keys, n = 1 and m is the sink: E is
u (12 |m| + 4), g is 9.5 u, and lse errs by u (|m| + 8) besides.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from ladder.operations.attention.reference import AttentionReference
from ladder.operations.attention.reference import reference as attention_reference
from ladder.operations.attention.rows import U
from ladder.operations.decoding.inputs import keys_of
from ladder.operations.decoding.problem import DecodingProblem


def reference(problem: DecodingProblem, inputs: Mapping[str, Any]) -> AttentionReference:
    """Computes o (B, H, N, d) and lse (B, H, N) in float64, on the inputs' device, with their bounds."""
    q, table, sinks = inputs["q"], inputs["block_table"], inputs["sinks"]
    o = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    limits, lse_bound = torch.zeros_like(o), 0.0
    lse = torch.full(q.shape[:3], -math.inf, dtype=torch.float64, device=q.device)
    if sinks is not None:  # a row without keys sees the sink alone
        lse[:] = sinks[:, None]
        if 0 in problem.all_lengths:
            lse_bound = float(U * (13 * sinks.abs().max() + 22))
    sequences: dict[int, list[int]] = defaultdict(list)
    for b, length in enumerate(problem.all_lengths):
        sequences[length].append(b)
    spreads = {}
    for length, these in sequences.items():
        if not length:
            continue
        k, v = (
            torch.stack(
                [keys_of(inputs[f"{x}_cache"], table, b, length, inputs[f"{x}_descale"]) for b in these]
            )
            for x in "kv"
        )
        rules = problem.of_sequences(len(these), length).rules
        found = attention_reference(q[these], k, v, merged=True, scaled=problem.e4m3, sinks=sinks, **rules)
        o[these], lse[these] = found.o, found.lse
        limits[these] = torch.as_tensor(found.limits["o"])
        lse_bound = max(lse_bound, found.lse_bound)
        spreads = dict(found.spreads) if len(sequences) == 1 else {}
    return AttentionReference({"o": o, "lse": lse}, {"o": limits, "lse": lse_bound}, spreads)
