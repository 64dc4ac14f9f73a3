"""A rung whose offsets have 32 bits is right on all tensors that fit into memory; reserved ones show it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rungs import named

from ladder.errors import ExecutionError
from ladder.operations import get_operation
from ladder.run.evaluation import faults_beyond_32_bits
from ladder.stages import discover, include_directory

#: The headers that compute offsets for the rungs.
HEADERS = ("ladder/head.h", "ladder/backward_rows.h", "ladder/hstu_sequence.h", "tiles/memory_global.h")


def faults_on_large_tensors(stage: str, number: int, changed: Callable[[str], str], folder: Path) -> str:
    """Of the rung with this change to its sources and to the headers that compute its offsets."""
    mine = folder / "mine"
    shutil.copytree(discover()[stage].path, mine, ignore=shutil.ignore_patterns("test_*", "README*"))
    for source in (*mine.glob("*.cu"), *mine.glob("*.h")):
        source.write_text(changed(source.read_text()))
    shutil.copytree(include_directory(), mine, dirs_exist_ok=True)  # they come before those of stages/include
    for name in HEADERS:
        (mine / name).write_text(changed((mine / name).read_text()))
    found = discover()["mine"]
    huge = get_operation(found.computes).beyond_32_bits(found.dtypes, found.head_dims)[number]
    try:
        return faults_beyond_32_bits(found.narrowed([huge.problem]), huge)
    except ExecutionError as error:
        return str(error)


@pytest.mark.parametrize("type_of_offsets", ["int", pytest.param("unsigned", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "stage, number, faults",
    [
        (named("v1"), 0, ["|o - ref|"]),
        (named("v8"), 0, ["|o - ref|"]),
        (named("v11"), 1, ["|o - ref|"]),
        (named("b2"), 0, ["|dq - ref|", "|dk - ref|", "|dv - ref|"]),
        pytest.param(named("b4"), 0, ["|dq - ref|"], marks=pytest.mark.full),
        (named("h1"), 0, ["|o - ref|"]),
        pytest.param(named("h3"), 2, ["|o - ref|"], marks=pytest.mark.full),
        pytest.param(named("h3b"), 0, [], marks=pytest.mark.full),
        pytest.param(named("h3c"), 1, ["|d_rab - ref|"], marks=pytest.mark.full),
        pytest.param(named("h5"), 3, ["|o - ref|"], marks=pytest.mark.full),
        pytest.param(named("h6"), 0, ["|o - ref|"], marks=pytest.mark.full),
    ],
)
def test_offsets_of_32_bits_are_found(
    stage: str,
    number: int,
    faults: Sequence[str],
    type_of_offsets: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))

    def changed(text: str) -> str:
        return re.sub(r"\bint64_t\b", type_of_offsets, text)

    found = faults_on_large_tensors(stage, number, changed, tmp_path)
    assert found and all(fault in found for fault in faults), found


def last_part(stage: str, number: int) -> str | None:
    found = discover()[stage]
    huge = get_operation(found.computes).beyond_32_bits(found.dtypes, found.head_dims)[number]
    return faults_beyond_32_bits(found.narrowed([huge.problem]), huge)


def test_first_blocks_that_have_the_last_rows_are_tried() -> None:
    assert last_part(named("v11"), 1) == ""


def test_blocks_that_take_numbers_are_told_apart() -> None:
    """The last ones alone take the first numbers."""
    assert last_part(named("b3"), 0) is None


@pytest.mark.full
def test_the_rung_whose_blocks_take_numbers_is_right_if_they_take_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tests skip it, since its last blocks alone begin with the first keys."""
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))

    def changed(text: str) -> str:
        return text.replace("atomicAdd(started, 1)", "blockIdx.x")

    assert faults_on_large_tensors(named("b3"), 0, changed, tmp_path) == ""
