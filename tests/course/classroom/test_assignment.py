"""The assignment: its points are those of its rubric, and its exercises and limits are there."""

from __future__ import annotations

import csv
import importlib.util
import re
from pathlib import Path

import pytest
from rungs import named

from ladder.course.exercises import get_exercise
from ladder.operations import get_operation
from ladder.run.evaluation import evaluate

FOLDER = Path(__file__).parents[3] / "classroom" / "assignment"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
_spec = importlib.util.spec_from_file_location("assignment_points", FOLDER / "points.py")
assert _spec is not None and _spec.loader is not None
points = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(points)

GRADES = "student,exercise,solved,tries,first failing case\n"
BOARD = "rank,student,computes,problem,wavefronts,instructions,conflicts,sectors,refused\n"


def rubric() -> dict[str, tuple[int, str]]:
    rows = re.findall(r"^\| ([\w: -]+?) \| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    return {what: (int(given), how) for what, given, how in rows}


def test_the_rubric_has_100_points_and_the_programs_numbers() -> None:
    assert sum(given for given, _ in rubric().values()) == 100
    assert rubric()["Exercises"][0] == points.PER_EXERCISE * len(points.EXERCISES)
    assert rubric()["Rung: right"][0] == points.RIGHT
    for count, limits in points.LIMITS.items():
        given, how = rubric()[f"Rung: {count}"]
        said = {
            int(most.replace(",", "")): int(n) for n, most in re.findall(r"(\d+) for at most ([\d,]+)", how)
        }
        assert said == limits and given == max(limits.values())


def test_the_exercises_of_the_page_are_those_that_count() -> None:
    week_1 = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert tuple(week_1) == points.EXERCISES
    assert [get_exercise(name).name for name in week_1] == week_1


def test_the_limits_lie_between_the_counts_of_two_rungs() -> None:
    problem = get_operation("attention").default_problem
    for count, columns in {
        "sectors": ("global_sectors_ld", "global_sectors_st"),
        "wavefronts": ("wavefronts_ld", "wavefronts_st"),
    }.items():
        start, reference = (
            sum(int(row[column]) for column in columns)
            for row in (
                evaluate(name, problem, backend="emulator").row for name in (named("v3"), named("v4"))
            )
        )
        assert all(reference <= most < start for most in points.LIMITS[count])
        assert f"{start:,} {count}" in PAGE and f"{reference:,} {count}" in PAGE


def test_points_of_a_class(tmp_path: Path) -> None:
    grades, board = tmp_path / "grades.csv", tmp_path / "board.csv"
    solved = "".join(f"ann,{name},yes,1,\n" for name in points.EXERCISES)
    grades.write_text(GRADES + solved + "ben,v1_lse,no,3,x\nben,v3_xor,yes,1,\nben,cuda_map,yes,1,\n")
    board.write_text(
        BOARD
        + "1,ann,attention,P,19600,1,0,12401,\n"
        + "2,cid,attention,P,23040,1,0,24640,\n"
        + "1,dan,row_softmax,P,1,1,0,1,\n"
        + ",ben,attention,P,1,1,0,1,a race\n"
    )
    out = tmp_path / "points.csv"
    assert points.main([str(grades), str(board), "--csv", str(out)]) == 0
    with out.open(newline="") as file:
        rows = {row["student"]: [*row.values()][1:] for row in csv.DictReader(file)}
    assert rows == {
        "ann": ["40", "20", "5", "10", "75"],
        "ben": ["5", "0", "0", "0", "5"],
        "cid": ["0", "20", "0", "0", "20"],
        "dan": ["0", "0", "0", "0", "0"],
    }


def test_files_in_the_wrong_order_are_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "grades.csv").write_text(GRADES + "ann,v1_lse,yes,1,\n")
    (tmp_path / "board.csv").write_text(BOARD + ",ann,,,,,,,a race\n")
    with pytest.raises(SystemExit):
        points.main([str(tmp_path / "board.csv"), str(tmp_path / "grades.csv")])
    assert "has no column solved" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        points.main([str(tmp_path / "none.csv"), str(tmp_path / "board.csv")])
    assert "none.csv cannot be read: No such file" in capsys.readouterr().err
