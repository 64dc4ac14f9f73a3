"""What the lessons are made with."""

from __future__ import annotations

import html
import re
from types import SimpleNamespace

import pytest
import torch

from ladder.lessons import teaching
from ladder.operations import Problem
from ladder.stages import discover


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A stage whose source is known here."""
    folder = tmp_path / "lesson_stage"
    folder.mkdir()
    (folder / "kernel.cu").write_text("int once;\n  for (;;) {\n    twice();\n\n    twice();\n  }\n")
    origin = discover()["v1_minimal"].path / "stage.toml"
    (folder / "stage.toml").write_text(origin.read_text())
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    return "lesson_stage"


def test_lines_are_read_from_the_source(stage: str) -> None:
    found = teaching.source(stage, "for (;;)", "}")
    assert (found.first, found.lines) == (2, ("  for (;;) {", "    twice();", "", "    twice();", "  }"))
    shown = html.unescape(re.sub("<[^>]*>", " ", found._repr_html_()))
    wanted = "lesson_stage/kernel.cu 2 for (;;) { 3 twice(); 4 5 twice(); 6 }"
    assert "".join(shown.split()) == "".join(wanted.split())
    assert "color: #" in found._repr_html_()
    assert str(teaching.source(stage, "once")) == "   1  int once;"
    assert teaching.line_of(stage, "for") == 2


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda stage: teaching.source(stage, "twice"), r"has 2 lines \(3, 5\) with 'twice'"),
        (lambda stage: teaching.source(stage, "never"), "has 0 lines with 'never'"),
        (lambda stage: teaching.source(stage, "}", "once"), "no line with 'once' after line 6"),
        (lambda stage: teaching.source(stage, "once", file="none.h"), "has no file none.h"),
    ],
)
def test_a_line_that_is_not_there(stage: str, ask, says: str) -> None:
    with pytest.raises(teaching.LessonError, match=says):
        ask(stage)


def test_predictions() -> None:
    words = {"hint": "Count the banks.", "because": "There are 32."}
    hidden = teaching.check(None, 31, **words)
    assert hidden.right is None and "31" not in str(hidden) and "Count the banks." in str(hidden)
    assert "There are 32." not in str(hidden)
    right = teaching.check(31, 31, **words)
    assert right.right is True and "Right: 31" in str(right) and "There are 32." in str(right)
    wrong = teaching.check(32, 31, **words)
    assert wrong.right is False and "you said 32, it is 31" in str(wrong) and "There are 32." in str(wrong)
    for nonsense in (True, "31"):
        assert teaching.check(nonsense, 31, **words).right is False  # type: ignore[arg-type]


def test_counts_and_costs_of_a_rung() -> None:
    import ladder

    problem = Problem(1, 1, 64, 64, 32)
    table = ladder.compare(problem, ["v2_warp_mma", "v3_swizzle"], backend="emulator")
    shown = teaching.counts(table)
    assert list(shown.columns) == ["v2_warp_mma", "v3_swizzle"]
    assert list(shown.loc["bank conflicts"]) == [f"{value:,}" for value in table["conflicts"]]
    assert shown.loc["bank conflicts", "v3_swizzle"] == "0" and "time, ms" not in shown.index

    lines = teaching.costs("v2_warp_mma", problem, count=3).data
    assert len(lines) == 3 and lines.index.is_monotonic_increasing
    number = teaching.line_of("v2_warp_mma", "ldmatrix_x4(k_rmem")
    executed, conflicts = teaching.conflicts_of("v2_warp_mma", "ldmatrix_x4(k_rmem", problem)
    assert lines.loc[number, "conflicts"] == f"{conflicts:,}" and executed > 0


def test_times_are_a_gpus_alone(monkeypatch) -> None:
    import ladder

    if not torch.cuda.is_available():
        assert "claims no times" in str(teaching.times())
    table = ladder.compare(Problem(1, 1, 64, 64, 32), ["v2_warp_mma"], backend="emulator")
    monkeypatch.setattr("ladder.backends.choice.get_backend", lambda name: SimpleNamespace(times=True))
    monkeypatch.setattr(
        "ladder.evaluation.comparison.compare",
        lambda problem, stages: table[table["stage"].isin(stages)].assign(time_ms=0.25, tflops=12.345),
    )
    shown = teaching.times(["v2_warp_mma"])
    assert list(shown.columns) == ["v2_warp_mma"]
    assert list(shown.loc["time, ms"]) == ["0.25"] and list(shown.loc["TFLOP/s"]) == ["12.3"]
