"""Claims that rungs share: ptxas serialises no wgmma and spills no register, and there is no bank conflict.

These tests are the first: they compile whole rungs, and later tests of a rung then compile nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ladder.operations import USUAL_HEAD_DIMS, get_operation
from ladder.operations.attention.shapes import few
from ladder.run.evaluation import default_problem, evaluate_all
from ladder.stages import Stage, discover

LADDER = discover()
WGMMA = [stage.name for stage in LADDER if stage.only_arch and stage.is_own]
#: Of the others, those whose kernels for sm_80 and sm_90 fit the registers.
BEFORE_WGMMA = [
    "b1",
    "b2",
    "b2b",
    "b3",
    "v4",
    "v5",
]
#: Those of them that take attention without variants, and its gradients.
DENSE = [
    name
    for name in [*WGMMA, *BEFORE_WGMMA]
    if LADDER[name].computes in ("attention", "attention_backward") and not LADDER[name].needs
]
SIZES = [(1, 1), (100, 150), (17, 200), (300, 300)]


def require_no_spills(spilled: list[int], stage: Stage, dtypes: int) -> None:
    kernels = {d if d in USUAL_HEAD_DIMS else -(-d // 64) * 64 for d in stage.head_dims}
    assert len(spilled) >= dtypes * len(kernels) and set(spilled) == {0}


@pytest.mark.parametrize("name", WGMMA)
def test_products_are_not_serialised_and_nothing_is_spilled(
    ptxas_report: Callable[..., str], spilled_bytes: Callable[..., list[int]], name: str
) -> None:
    """C7508 among these remarks says that setmaxnreg is ignored."""
    stage = LADDER[name]
    assert re.findall(r"\(C75\d+\)", ptxas_report(name)) == []
    require_no_spills(spilled_bytes(name), stage, len(stage.dtypes))


@pytest.mark.parametrize("name", BEFORE_WGMMA)
def test_nothing_is_spilled(spilled_bytes: Callable[..., list[int]], name: str) -> None:
    """For sm_90 of fp16 alone: bf16 takes the same registers."""
    stage, usual = LADDER[name], default_problem(name)
    in_f16: list[Any] = [replace(usual, head_dim=d, dtype="f16") for d in stage.head_dims]
    require_no_spills(spilled_bytes(name, "sm_80"), stage, len(stage.dtypes))
    require_no_spills(spilled_bytes(name, "sm_90", in_f16), stage, 1)


@pytest.mark.parametrize("name", DENSE)
def test_no_conflicts(name: str) -> None:
    stage = LADDER[name]
    problem: Any = get_operation(stage.computes).problem
    problems = [
        problem(1, 2, n, m, d, kv_heads=1, dtype=dtype, is_causal=is_causal)
        for d in few(stage.head_dims)
        for n, m in SIZES
        for dtype, is_causal in (("f16", False), ("bf16", True))
    ]
    found = [*evaluate_all(stage, problems, backend="emulator")]
    assert [one.text for one in found if not one.passed] == []
    assert {(one.row["conflicts"], one.row["conflicts_gmma"]) for one in found} == {(0, 0)}
