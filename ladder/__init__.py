"""A ladder of flash-attention CUDA kernels that can be run, checked and counted with or without a GPU.

    import ladder
    o, lse = ladder.attention(q, k, v, is_causal=True, stage="v2_warp_mma")
    ladder.compare()                                     # the table, as a pandas DataFrame

Modules that need torch are loaded on first use, so that ``import ladder`` is quick.
"""

from __future__ import annotations

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
__getattr__ = door(__name__)
