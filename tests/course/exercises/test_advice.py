"""The advice on an answer names its fault and does not lead away from it, by tools/expected_advice.toml."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ladder.course.exercises import Exercise, exercises, get_exercise
from ladder.course.exercises.deadlocks import deadlock_lines
from ladder.run.emulator.situations import (
    arrival_after,
    conditional_barrier,
    has_a_loaded_index,
    is_in_a_loop_before,
)
from tools.show_advice import MOST_LINES, TABLE, answers, expected, judged, new_verdict, shown

RECORDED = json.loads(TABLE.read_text(encoding="utf-8"))
#: A few that are quick, one for each situation.
SAMPLE = (
    ("cuda_scan", "untouched"),
    ("cuda_matmul", "no barrier before the tiles are overwritten"),
    ("cuda_histogram", "read, added and written in three lines"),
    ("cuda_race", "the barrier of the tree removed"),
    ("cuda_stencil", "the barrier in a branch"),
    ("r2_deadlock", "untouched"),
)


def require_help(exercise: Exercise, why: str) -> None:
    """Answers that are recorded as vague may be so, or better."""
    text = dict(answers(exercise))[why]
    lines = shown(new_verdict(exercise, text))
    was = RECORDED.get(exercise.name, {}).get(why, {}).get("judged", "")
    now = judged(exercise.name, why, lines)
    assert now == "helpful" or (now.startswith("vague") and was.startswith("vague")), "\n".join(lines)


@pytest.mark.parametrize(("name", "why"), SAMPLE, ids=lambda one: str(one))
def test_the_advice_names_the_fault(name: str, why: str) -> None:
    require_help(get_exercise(name), why)


@pytest.mark.full
@pytest.mark.parametrize(
    ("exercise", "why"),
    [(one, why) for one in exercises() for why, _ in answers(one)],
    ids=lambda part: getattr(part, "name", str(part)),
)
def test_the_advice_on_every_answer(exercise: Exercise, why: str) -> None:
    require_help(exercise, why)


def test_every_answer_has_an_expectation() -> None:
    known = {one.name: [why for why, _ in answers(one)] for one in exercises()}
    assert {name: list(rows) for name, rows in expected().items() if name != "rules"} == known


def test_the_table_is_judged_by_the_expectations() -> None:
    rows = [(name, why, row) for name, rows in RECORDED.items() for why, row in rows.items()]
    assert [(name, why) for name, why, row in rows if judged(name, why, row["lines"]) != row["judged"]] == []
    counts = Counter(row["judged"].partition(":")[0] for _, _, row in rows)
    assert set(counts) <= {"helpful", "vague"}
    assert counts["helpful"] >= 0.95 * len(rows)


@pytest.mark.parametrize(
    ("lines", "judgement"),
    [
        (["not yet cuda_scan", "Put __syncthreads() between the two lines.", "use atomicAdd"], "misleading"),
        (["not yet cuda_scan", "sums[2] is 7, should be 8"], "vague"),
        (["not yet cuda_scan", "Put __syncthreads() between the two lines."], "helpful"),
        (["not yet cuda_scan", "Put __syncthreads() between the two lines.", *["-"] * MOST_LINES], "long"),
        (["solved cuda_scan"], "solved"),
    ],
)
def test_a_text_is_judged_by_its_expectation(lines: list[str], judgement: str) -> None:
    assert judged("cuda_scan", "a barrier of the warp", lines).partition(":")[0] == judgement


SOURCE = """\
for (int k0 = 0; k0 < k; k0 += kTile) {
  tile[t] = x[k0 + t];
  __syncthreads();
  sum += tile[kTile - t];
  if (t < 32)
    __syncthreads();
}
for (int width = 64; width > 0; width /= 2) {
  part[t] = max(part[t], part[t + width]);
}
y[i] = part[0];
const int so_far = own[x[i]];
own[x[i]] = so_far + 1;
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "kernel.cu"
    path.write_text(SOURCE)
    return str(path)


def test_a_barrier_behind_an_if_is_seen(source: str) -> None:
    assert conditional_barrier(source, 2, 4, "__syncthreads()") == 6
    assert conditional_barrier(source, 2, 3, "__syncthreads()") == 6
    assert conditional_barrier(source, 9, 11, "__syncthreads()") is None


def test_a_barrier_that_all_reach_is_not_behind_an_if(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(SOURCE.replace("  if (t < 32)\n    __sync", "  __sync"))
    assert conditional_barrier(str(path), 2, 4, "__syncthreads()") is None


def test_a_loop_that_ends_before_the_other_line(source: str) -> None:
    assert is_in_a_loop_before(source, 9, 11)
    assert not is_in_a_loop_before(source, 11, 12)
    assert not is_in_a_loop_before(source, 2, 4)


def test_an_index_that_is_loaded(source: str) -> None:
    assert has_a_loaded_index(source, 12, 13)
    assert not has_a_loaded_index(source, 2, 4)


def test_an_arrival_that_hands_data_over(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text("store(ds, x);\nfence();\nfull.arrive();\nmma(dq, ds);\n// arrive()\nmma(dk, ds);\n")
    assert arrival_after(str(path), 1) == 3
    assert arrival_after(str(path), 4) is None


STUCK = "no warp of the block can proceed"
EMPTY = (
    "warp 12: lane 0 at the mbarrier at byte 8 of shared memory for the phase of parity 0, which is in phase "
    "0 and waits for 8 of 12 arrivals (kernel.cu:102)"
)
FULL = (
    "warps 0-3: lanes 0-31 at the mbarrier at byte 16 of shared memory for the phase of parity 1, which is "
    "in phase 1 and waits for 1 of 1 arrivals (kernel.cu:133)"
)


def told(*waits: str, calls: dict[str, str]) -> list[str]:
    message = f"{STUCK}: {'; '.join(waits)}"
    return list(deadlock_lines("N=8", message, lambda place: f"{place}  {calls[place]}", "Look there."))


def test_a_deadlock_names_the_line_and_what_is_missing_there() -> None:
    calls = {"kernel.cu:102": "smem.k.wait_empty(turn);", "kernel.cu:133": "smem.k.wait_full(turn);"}
    first, full, empty, advice = told(FULL, EMPTY, calls=calls)
    assert first == f"On N=8: deadlock, {STUCK}"
    assert full == "  warps 0-3: 1 of 1 arrivals are missing, at kernel.cu:133  smem.k.wait_full(turn);"
    assert empty == "  warp 12: 8 of 12 arrivals are missing, at kernel.cu:102  smem.k.wait_empty(turn);"
    # The load is missing because the buffer is not released, so the release comes first.
    assert advice.startswith("The wait for an empty buffer needs a release")
    assert told(FULL, calls=calls)[-1].startswith("The wait for a full buffer needs a load")
    member = {"kernel.cu:102": "smem.q_empty[now].wait(0);"}
    assert told(EMPTY, calls=member)[-1].startswith("The wait for an empty buffer")
    assert told(FULL, calls={"kernel.cu:133": "wait(0);"})[-1].startswith("Which threads should arrive?")
    assert (
        told("warp 1: lane 0 in a loop (kernel.cu:9)", calls={"kernel.cu:9": "while (f());"})[-1]
        == "Look there."
    )


def test_a_deadlock_of_many_waits_is_short() -> None:
    waits = [FULL.replace("0-3", f"{warp}-{warp + 3}") for warp in range(0, 20, 4)]
    lines = told(*waits, calls={"kernel.cu:133": "smem.k.wait_full(turn);"})
    assert len(lines) == 5 and lines[3] == "  and 3 more"
