"""A rung whose offsets have 32 bits is right on all tensors that fit into memory; reserved ones show it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ladder.evaluation import faults_of_last_block
from ladder.operations import get_operation
from ladder.stages import discover

STAGES = Path(__file__).parents[2] / "stages"
HEAD = (STAGES / "include" / "ladder" / "head.h").read_text()


def faults_on_large_tensors(stage: str, number: int, type_of_offsets: str, folder: Path) -> str:
    """Of the rung with offsets of this type, in its kernel and in the header that computes them for it."""

    def changed(text: str) -> str:
        return re.sub(r"\bint64_t\b", type_of_offsets, text)

    mine = folder / "mine"
    shutil.copytree(STAGES / stage, mine, ignore=shutil.ignore_patterns("test_*", "README*"))
    (mine / "my_head.h").write_text(changed(HEAD))
    kernel = (mine / "kernel.cu").read_text().replace('"ladder/head.h"', '"my_head.h"')
    (mine / "kernel.cu").write_text(changed(kernel))
    toml = re.sub(r"head_dims = .*", "head_dims = [32]", (mine / "stage.toml").read_text())
    (mine / "stage.toml").write_text(toml)
    found = discover()["mine"]
    problems = get_operation("attention").beyond_32_bits(found.dtypes, found.head_dims)
    return faults_of_last_block(found, *problems[number])


@pytest.mark.parametrize("type_of_offsets", ["int", pytest.param("unsigned", marks=pytest.mark.full)])
@pytest.mark.parametrize("stage, number", [("v1_minimal", 0), ("v8_tma", 0), ("v1b_fa2_loops", 1)])
def test_offsets_of_32_bits_are_found(
    stage: str, number: int, type_of_offsets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    assert "|o - ref|" in faults_on_large_tensors(stage, number, type_of_offsets, tmp_path)
