"""Boxes that are partly or wholly outside their tensor. On an H200 loads give zeros there, and stores leave
out what is past the end; a store with a negative coordinate is an illegal instruction.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.compile import EmulatorTarget, build_program
from ladder.run.emulator import run_program
from ladder.stages import include_directory

ROWS, BOX_ROWS, COLS = 20, 16, 64  # of a matrix, a box, both


@pytest.fixture(scope="module")
def program() -> Path:
    source = Path(__file__).with_name("programs") / "tensor_stores.cu"
    return build_program([source], EmulatorTarget("sm_90a"), [f"-I{include_directory()}"])


@pytest.mark.parametrize("what", ["load", "store", "add"])
@pytest.mark.parametrize(
    ("row", "matrix", "rows"),
    [(0, 0, 16), (4, 2, 16), (5, 1, 15), (19, 0, 1), (20, 0, 0), (900, 2, 0), (0, 3, 0)],
)
def test_a_box_past_the_end(
    program: Path, what: str, row: int, matrix: int, rows: int, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run_program(program, [what, "0", str(row), str(matrix)], "sm_90a")
    assert result.exit_code == 0 and result.fault is None
    assert capfd.readouterr().out == f"{rows * COLS} elements\n"


BEFORE = [((-8, 0, 0), 0), ((0, -1, 0), 1), ((0, -64, 1), 1), ((0, 0, -1), 3), ((0, 4, -2), 3)]


@pytest.mark.parametrize(("place", "dimension"), BEFORE)
def test_a_load_before_the_tensor_gives_zeros(
    program: Path, place: tuple[int, int, int], dimension: int, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run_program(program, ["load", *map(str, place)], "sm_90a")
    assert result.exit_code == 0 and result.fault is None
    col, row, matrix = place
    inside = (COLS + min(col, 0)) * max(0, BOX_ROWS + min(row, 0)) * (matrix >= 0)
    assert capfd.readouterr().out == f"{inside} elements\n"


@pytest.mark.parametrize("what", ["store", "add"])
@pytest.mark.parametrize(("place", "dimension"), BEFORE)
def test_a_store_before_the_tensor_is_a_fault(
    program: Path, what: str, place: tuple[int, int, int], dimension: int
) -> None:
    result = run_program(program, [what, *map(str, place)], "sm_90a")
    assert result.exit_code == 1
    first = min(place)
    assert (
        f"a store to a box that starts at element {first} of dimension {dimension}, before the tensor: only "
        "loads may" in (result.fault or "")
    )
