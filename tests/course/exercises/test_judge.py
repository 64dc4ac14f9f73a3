"""What the check says of a run that did not end by itself."""

from __future__ import annotations

import pytest

from ladder.course.exercises import Verdict, get_exercise
from ladder.course.exercises.judge import _failure
from ladder.operations import Problem
from ladder.run.emulator import Fault, FaultError, Finding, Party
from ladder.stages import discover

PROBLEM = Problem(1, 1, 64, 64, 64)
STUCK = "no warp of the block can proceed"
UNCHANGED = (
    "all remaining blocks of the grid wait, and nothing that they wait for has changed for a long time"
)


def found(kind: str, message: str, opcode: str) -> Finding:
    place = Party((0, 0, 0), 0, (0,), "", 0, "kernel.cu", 1, 1, opcode, 1)
    return Finding(kind, message, "attend", 1, place, None, "")


@pytest.mark.parametrize(
    ("what", "wait", "advice"),
    [
        (STUCK, "at the mbarrier", "Which threads should arrive? Compare the count of init"),
        (STUCK, "at barrier 1", "Which threads should arrive there?"),
        (UNCHANGED, "in a loop", "Which thread writes what this loop waits for?"),
    ],
)
def test_a_deadlock_is_told_once(monkeypatch: pytest.MonkeyPatch, what: str, wait: str, advice: str) -> None:
    message = f"{what}: warp 0: lane 0 {wait} (kernel.cu:1)"
    finding = found("barrier", message, "ld.acquire")
    monkeypatch.setattr("ladder.run.evaluation.check_stage", lambda stage, problems: [finding])
    [remark] = _failure(discover()["v8"], PROBLEM, deadlock(message))
    verdict = Verdict(get_exercise("v8_ask"), [remark])
    assert verdict.first_failing_case == f"{PROBLEM}: deadlock"
    first, *_, last = remark.text.splitlines()
    assert first == f"On {PROBLEM}: deadlock, {what}"
    assert last.startswith(advice)


def test_what_the_sanitizer_finds_besides_a_deadlock_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    race = found("race between warps", "writes 4 bytes of shared memory", "st.shared")
    monkeypatch.setattr("ladder.run.evaluation.check_stage", lambda stage, problems: [race])
    remarks = _failure(discover()["v8"], PROBLEM, deadlock())
    assert [one.kind for one in remarks] == ["sanitizer", "deadlock"]


def deadlock(message: str = f"{STUCK}: warp 0: lane 0 at the mbarrier (kernel.cu:1)") -> FaultError:
    origin = (0, 0, 0)
    place = ("", 0, "kernel.cu", 1, 1, 1)
    return FaultError(Fault("deadlock", message, "attend", origin, -1, -1, origin, None, "", *place, message))
