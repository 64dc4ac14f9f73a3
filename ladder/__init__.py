"""A ladder of flash-attention CUDA kernels that can be run, checked and counted with or without a GPU.

    import ladder
    o, lse = ladder.attention(q, k, v, is_causal=True, stage="v2")
    ladder.compare()                                     # the table, as a pandas DataFrame

Modules that need torch are loaded on first use, so that ``import ladder`` is quick; if torch is already
imported, its operators ``torch.ops.ladder`` are registered at once, as ``torch.export.load`` needs them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ladder import moved
from ladder.doors import door
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
    from ladder.call import (
        HSTULayer,
        attention,
        decode_attention,
        hstu_attention,
        norm_gate,
        register_attention,
        varlen_attention,
    )
    from ladder.operations import HstuPages, Problem, hstu_mask
    from ladder.run.evaluation import compare, evaluate
    from ladder.run.foreign import counting
    from ladder.stages import discover

#: The package's version; CHANGELOG.md says what changed and what a version promises.
__version__ = "0.2.0"

moved.install()

__all__ = [
    "BuildError",
    "CacheError",
    "ExecutionError",
    "HSTULayer",
    "HstuPages",
    "InvalidProblem",
    "LadderError",
    "Problem",
    "StageError",
    "ToolchainError",
    "UnsupportedProblem",
    "attention",
    "compare",
    "counting",
    "decode_attention",
    "discover",
    "evaluate",
    "hstu_attention",
    "hstu_mask",
    "norm_gate",
    "register_attention",
    "varlen_attention",
]

__getattr__ = door(__name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "torch" in sys.modules:
    from ladder.call import attention, decode_attention, hstu_attention, norm_gate, varlen_attention
