"""Counts a rung's instructions per score (element of S) by kind."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from ladder.operations import Problem
from ladder.stages import discover

#: Kinds of instructions, by prefix of their PTX. The first match counts; the last kind takes the rest.
KINDS = {
    "products (mma, wgmma)": r"(wgmma\.)?mma",
    "ldmatrix": r"ldmatrix",
    "exponentials (ex2)": r"ex2",
    "shuffles and votes": r"shfl|vote",
    "arithmetic on floats": r"(fma|mul|add|sub|max|min|neg|div|rcp|cvt)\S*\.(f16|f32|bf16|f16x2|bf16x2)",
    "all else": r"",
}


def instructions_a_score(stages: Sequence[str], problem: Problem) -> pd.DataFrame:
    """A lane's PTX instructions per score in the emulator: one row per stage, one column per kind."""
    from ladder.run.evaluation import evaluate

    scores = problem.batch * problem.heads * problem.q_len * problem.kv_len
    rows = {}
    for stage in stages:
        found = pd.concat(
            launch.instructions()
            for launch in evaluate(stage, problem, backend="emulator").execution.launches
        )
        kinds = found["ptx"].map(_kind)
        rows[discover().today(stage)] = 32 / scores * found["executed"].astype(float).groupby(kinds).sum()
    return pd.DataFrame(rows).T.reindex(columns=list(KINDS)).fillna(0.0)


def _kind(ptx: str) -> str:
    opcode = re.sub(r"^@\S+\s+", "", ptx)
    return next(kind for kind, pattern in KINDS.items() if re.match(pattern, opcode))
