"""Cached rows are used only while nothing that they depend on has changed."""

from dataclasses import replace
from pathlib import Path

import pytest
from rungs import named

import ladder
from ladder.operations import Problem
from ladder.run.backends import get_backend
from ladder.run.evaluation import comparison
from ladder.stages import discover

PACKAGE = Path(ladder.__file__).parent
PROBLEM = Problem(1, 1, 16, 16, 32, dtype="f32")
EXTENSION = Path(f"{named('v1')}-emulator-sm_80-0123/ladder_stage.so")


@pytest.fixture
def job():
    return comparison._job(discover()["v1"], PROBLEM, get_backend("emulator"), None, {})


@pytest.mark.parametrize(
    "file",
    [
        *(
            "run/backends/base.py",
            "run/backends/emulated.py",
            "run/emulator/sessions.py",
            "run/evaluation/table.py",
        ),
        *("run/evaluation/comparison.py", "operations/base.py", "operations/attention/reference.py"),
    ],
)
def test_an_edit_asks_for_a_row_of_its_own(job, file, monkeypatch):
    before = comparison._row_file(EXTENSION, job)
    assert comparison._row_file(EXTENSION, job) == before
    edited, read = PACKAGE / file, Path.read_bytes
    assert edited.is_file()
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" if path == edited else read(path))
    assert comparison._row_file(EXTENSION, job) != before


def test_another_problem_and_another_build_have_rows_of_their_own(job):
    rows = {
        comparison._row_file(EXTENSION, job),
        comparison._row_file(EXTENSION, replace(job, problem=replace(PROBLEM, inputs="large"))),
        comparison._row_file(Path(f"{named('v1')}-emulator-sm_80-4567/ladder_stage.so"), job),
    }
    assert len(rows) == 3
