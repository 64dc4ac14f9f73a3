"""The comparison of sanitizers: which cases it has, and that an interrupted run goes on where it was."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tools.measure import compare_sanitizers as comparison

CASES = [comparison.Case(Path("a.cu"), name, kind) for name, kind in (("one", "mask"), ("two", ""))]


def test_every_case_of_the_corpus_has_a_row_of_its_own() -> None:
    cases = comparison.all_cases()
    names = [case.name for case in cases]
    assert len(names) == len(set(names)) >= 300
    hopper = [case for case in cases if case.source.stem.startswith("hopper")]
    assert sum(case.expected != "" for case in hopper) >= 60
    assert sum(case.expected == "" for case in hopper) >= 30


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    asked: list[str] = []

    def answer(_: Path, case: comparison.Case) -> dict[str, str]:
        asked.append(case.name)
        if case.name == "two" and len(asked) == 2:
            raise OSError("interrupted")
        return {"ours": "reported"}

    def run() -> comparison.Rows:
        rows = comparison.Rows(CASES, file, file)
        left = [case for case in CASES if not rows.of[case.name]["ours"]]
        comparison.ask(rows, left, dict.fromkeys((case.source for case in CASES), file), 1, answer, "")
        return rows

    with pytest.raises(OSError, match="interrupted"):
        run()
    assert [row["ours"] for row in csv.DictReader(file.open())] == ["reported", ""]
    assert [row["ours"] for row in run().all()] == ["reported", "reported"]
    assert asked == ["one", "two", "two"]


def test_rows_of_other_cases_and_kinds_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(
        "case,expected,ours,memcheck\none,mask,reported,3\ntwo,leak,silent,0\nthree,clean,silent,0\n"
    )
    assert comparison.Rows(CASES, file, file).all() == [
        {"case": "one", "expected": "mask", "ours": "reported", "memcheck": "3"},
        {"case": "two", "expected": "clean", "ours": ""},
    ]
