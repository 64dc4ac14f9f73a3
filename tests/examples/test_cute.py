"""The example in CuTe has the counts of v3, if CUTLASS's headers are installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import evaluate

EXAMPLE = Path(__file__).parents[2] / "examples" / "cute_attention.cu"


def headers() -> Path:
    """The folder of CUTLASS's headers, of the package nvidia-cutlass."""
    found = importlib.util.find_spec("cutlass_library")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs CuTe's headers: pip install --no-deps nvidia-cutlass")
    return Path(found.submodule_search_locations[0]) / "source" / "include"


def count(said: str, name: str) -> int:
    found = re.search(rf"^ {name} +([\d,]+)", said, re.MULTILINE)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.full
def test_the_same_products_and_no_conflicts() -> None:
    """64 queries, 192 keys: four of v3's tiles, three of this one's."""
    command = [sys.executable, "-m", "ladder", "emulate", EXAMPLE, "-I", headers(), "--", "1", "64", "192"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ": right" in done.stdout
    row = evaluate("v3", Problem(1, 1, 64, 192, 64), backend="emulator").row
    said = done.stdout + done.stderr
    queries = 64 // 16 * (64 // 16)  # v3 loads Q's fragments from global memory
    assert count(said, "mma") == row["mma_instructions"]
    assert count(said, "ldmatrix") == row["ldmatrix_instructions"] + queries
    assert count(said, "wavefronts ld") == 4 * count(said, "ldmatrix")  # of 8 rows each: no conflict
    # v3 loads 16 bytes of a row of Q at once: half a sector, each sector twice.
    assert count(said, "sectors read") == row["global_sectors_ld"] - 64 * 64 * 2 // 32
