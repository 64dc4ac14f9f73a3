"""What ptxas says of the rungs: it serialises no wgmma and spills no register.

These tests are the first: they compile whole rungs, and later tests of a rung then compile nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ladder.evaluation import default_problem
from ladder.stages import Stage, discover, root

WGMMA = [stage for stage in discover() if stage.only_arch and stage.path.parent == root()]
#: Of the others, those whose kernels for sm_80 and sm_90 fit the registers.
BEFORE_WGMMA = [
    "b1_two_kernels",
    "b2_one_pass",
    "b2b_pairs",
    "b2c_large_blocks",
    "b3_same_bits",
    "v4_tk_tiles",
    "v5_async",
]


def require_no_spills(spilled: list[int], stage: Stage, dtypes: int) -> None:
    assert len(spilled) >= dtypes * len(stage.head_dims) and set(spilled) == {0}


@pytest.mark.parametrize("name", [stage.name for stage in WGMMA])
def test_products_are_not_serialised_and_nothing_is_spilled(
    ptxas_report: Callable[..., str], spilled_bytes: Callable[..., list[int]], name: str
) -> None:
    """C7508 among these remarks says that setmaxnreg is ignored."""
    stage = discover()[name]
    assert re.findall(r"\(C75\d+\)", ptxas_report(name)) == []
    require_no_spills(spilled_bytes(name), stage, len(stage.dtypes))


@pytest.mark.parametrize("name", BEFORE_WGMMA)
def test_nothing_is_spilled(spilled_bytes: Callable[..., list[int]], name: str) -> None:
    """For sm_90 of bf16 alone: fp16 takes the same registers."""
    stage, usual = discover()[name], default_problem(name)
    in_bf16: list[Any] = [replace(usual, head_dim=d, dtype="bf16") for d in stage.head_dims]
    require_no_spills(spilled_bytes(name, "sm_80"), stage, len(stage.dtypes))
    require_no_spills(spilled_bytes(name, "sm_90", in_bf16), stage, 1)
