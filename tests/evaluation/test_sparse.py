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


def faults_on_large_tensors(stage: str, type_of_offsets: str, folder: Path) -> str:
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
    [(problem, last)] = get_operation("attention").beyond_32_bits(found.dtypes, found.head_dims)
    return faults_of_last_block(found, problem, last)


@pytest.mark.parametrize("type_of_offsets", ["int", "unsigned"])
@pytest.mark.parametrize("stage", ["v1_minimal", "v8_tma"])
def test_offsets_of_32_bits_are_found(
    stage: str, type_of_offsets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    assert "|o - ref|" in faults_on_large_tensors(stage, type_of_offsets, tmp_path)
