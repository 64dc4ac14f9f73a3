"""A ladder of flash-attention CUDA kernels, each run, checked and counted, with a GPU or without.

    import ladder
    o, lse = ladder.attention(q, k, v, is_causal=True, stage="v2_warp_mma")
    ladder.compare()                                     # the table, as a pandas DataFrame

What needs torch is loaded when it is first used, so that ``import ladder`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ladder.errors import (
    BuildError,
    CacheError,
    ExecutionError,
    InvalidProblem,
    LadderError,
    StageError,
    ToolchainError,
    UnsupportedProblem,
)

if TYPE_CHECKING:
    from ladder.comparison import compare, evaluate
    from ladder.functional import attention
    from ladder.problem import Problem
    from ladder.stages import discover

# No module may have the name of a function here: once imported it would take its place.
_LAZY = {
    "Problem": "ladder.problem",
    "attention": "ladder.functional",
    "compare": "ladder.comparison",
    "discover": "ladder.stages",
    "evaluate": "ladder.comparison",
}

__all__ = [
    "BuildError",
    "CacheError",
    "ExecutionError",
    "InvalidProblem",
    "LadderError",
    "Problem",
    "StageError",
    "ToolchainError",
    "UnsupportedProblem",
    "attention",
    "compare",
    "discover",
    "evaluate",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'ladder' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
