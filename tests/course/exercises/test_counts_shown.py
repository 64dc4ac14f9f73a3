"""After an exercise is solved: the student's counts beside those of the reference."""

from __future__ import annotations

import pytest

from ladder.course.exercises import Verdict, afterword_lines, get_exercise, report
from ladder.course.exercises.reference_counts import ReferenceCounts


def shown(counts: dict[str, int | None], monkeypatch: pytest.MonkeyPatch, on: str = "run") -> list[str]:
    known = ReferenceCounts(on, {"global_sectors_ld": 250, "global_sectors_st": 125})
    monkeypatch.setattr(report, "reference_counts", lambda exercise: known)
    verdict = Verdict(get_exercise("cuda_vector_add"), counts=counts, counted_on="run")
    lines = [str(line) for line in afterword_lines(verdict, "mine")]
    return lines[lines.index("\nWhat the hardware would count, on run:") + 1 :]


def test_counts_stand_beside_the_reference_s(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"global_sectors_ld": 1000, "global_sectors_st": 125, "conflicts": 0, "conflicts_atom": None}
    assert shown(counts, monkeypatch) == [
        "  yours  reference",
        "  1,000        250  global sectors of loads",
        "    125        125  global sectors of stores",
        "Yours has more global sectors of loads than the reference: 1,000 against 250.",
    ]


def test_counts_that_are_nearly_the_same_are_left_without_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown({"global_sectors_ld": 374, "global_sectors_st": 125}, monkeypatch)
    assert lines[-1].endswith("125  global sectors of stores")
    lines = shown({"global_sectors_ld": 376, "global_sectors_st": 125}, monkeypatch)
    assert lines[-1].endswith("376 against 250.")
    lines = shown({"global_sectors_ld": 100, "global_sectors_st": 125}, monkeypatch)
    assert lines[-1] == "Yours has fewer global sectors of loads than the reference: 100 against 250."


def test_counts_of_another_run_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown({"global_sectors_ld": 9}, monkeypatch, on="other") == ["  9  global sectors of loads"]
