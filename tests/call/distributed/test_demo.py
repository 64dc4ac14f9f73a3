"""The demonstration as torchrun starts it."""

from __future__ import annotations

import subprocess
import sys

import pytest

LAUNCH = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "2",
    "-m",
    "ladder.distributed.demo",
]


@pytest.mark.full
def test_all_schedules_are_right() -> None:
    done = subprocess.run(LAUNCH, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("right"), done.stderr
    for schedule in ("all_gather", "ring", "zigzag", "ulysses"):
        assert done.stdout.count(f"\n {schedule} ") == 2  # results, and bytes


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("shape", "error: the ranks disagree about the number of query heads: 4 on rank 0; 8 on rank 1"),
        ("dies", "error: "),
        ("stops", "lost the other ranks: "),
    ],
)
def test_a_fault_ends_all_with_one_message(fault: str, message: str) -> None:
    # The limit is for busy machines, where a start takes minutes; test_ranks.py times the message itself.
    done = subprocess.run(
        [*LAUNCH, "--schedule", "ring", "--fault", fault], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and message in done.stderr
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1
