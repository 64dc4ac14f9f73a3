"""The table of ``python -m tools.bench verify``: its cases, and what the judge has said of each."""

from pathlib import Path

from ladder.call.torch import NOT_JUDGED, RIGHT, WRONG
from tools.bench import __main__ as bench
from tools.bench.verify import CASES, TABLE, read_cases, read_table, summary


def test_the_table_has_all_cases_and_each_is_judged_rightly() -> None:
    cases = {case.name: case for case in read_cases(CASES)}
    rows = {row["case"]: row for row in read_table(TABLE) if not row["source"]}
    assert {*rows} == {*cases}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        name: case.expected for name, case in cases.items()
    }
    assert {name: row["fault"] for name, row in rows.items()} == {
        name: one.fault for name, one in cases.items()
    }
    assert all(case.candidate.is_file() and case.reference.is_file() for case in cases.values())


def test_others_candidates_are_judged_rightly() -> None:
    rows = [row for row in read_table(TABLE) if row["source"]]
    assert [row for row in rows if row["verdict"] != row["expected"]] == []
    assert len(rows) >= 30


def test_a_case_is_what_its_table_says(tmp_path: Path) -> None:
    file = tmp_path / "cases.toml"
    file.write_text(
        "[[candidates]]\n"
        'reference = "model.py"\nsource = "sum.cu"\nright = ["tree"]\nseconds = 9\n'
        'with = [{ n = 3 }]\nlaunch = { grid = [1], block = [32], arguments = ["out"] }\n'
        'launches.tree = { block = [64] }\nwrong = { race = "no barrier" }\n'
    )
    tree, race = read_cases(file)
    assert (tree.name, tree.expected, race.name, race.expected) == ("sum.tree", RIGHT, "sum.race", WRONG)
    assert tree.launch and race.launch and (tree.launch.block, race.launch.kernel) == (["64"], "race")
    assert (race.fault, race.shapes, race.seconds) == ("no barrier", [{"n": 3}], 9)
    assert tree.candidate == tmp_path / "sum.cu"


def test_the_summary_counts_what_is_not_as_expected() -> None:
    rows = [
        {"expected": expected, "verdict": verdict, "seconds": seconds}
        for expected, verdict, seconds in (
            (WRONG, WRONG, "8.0"),
            (WRONG, RIGHT, "9.5"),
            (RIGHT, RIGHT, "30.0"),
            (RIGHT, NOT_JUDGED, "1.0"),
        )
    ]
    assert summary(rows) == "1 of 2 are wrong; 1 of 2 are right; median 10 s, longest 30 s"


def test_an_unknown_case_is_refused(capsys, tmp_path: Path) -> None:
    assert bench.main(["verify", "--only", "nothing", "--csv", str(tmp_path / "t.csv")]) == 2
    assert "no case has 'nothing' in its name" in capsys.readouterr().err
