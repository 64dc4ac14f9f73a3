"""What is said of a run of a program: of calls of the host, too, if an answer may have caused them."""

from __future__ import annotations

from pathlib import Path

from ladder.course.exercises.programs import _wrong
from ladder.run.emulator import ConfinedRun, Finding, ProgramLaunches, ProgramResult

COMMAND = "ladder emulate --check program.cu"
LAUNCH = ProgramLaunches("scale", None, None, None, 1, {})


def of_the_host(kind: str, place: str) -> Finding:
    return Finding(kind, "what happened", "", 1, None, None, "", host_place=place)


def wrong(*findings: Finding, exit_code: int = 0) -> list[str]:
    result = ProgramResult(exit_code, "sm_80", (LAUNCH,), None, findings, returned=exit_code)
    ran = ConfinedRun(result, "x[0] is 1, should be 2", ())
    return [remark.text for remark in _wrong(ran, "program.cu 8", COMMAND)]


def test_a_race_between_streams_is_told_with_the_line_of_the_call(tmp_path: Path) -> None:
    program = tmp_path / "program.cu"
    program.write_text("int main() {\n  scale<<<1, 2>>>(x);\n}\n")
    [text] = wrong(of_the_host("race between streams", f"{program}:2"))
    assert "race between streams, at program.cu:2  scale<<<1, 2>>>(x);" in text
    assert "what happened\nPut both into one stream, or make the later stream wait" in text


def test_a_host_that_does_not_wait_is_told_without_a_line_where_none_is_known() -> None:
    [text] = wrong(of_the_host("race with the host", ""))
    assert text.startswith("On program.cu 8: race with the host\nwhat happened\nCall cudaStreamSynchronize")


def test_what_a_main_leaves_behind_that_ended_early_is_not_told() -> None:
    assert wrong(of_the_host("leak", ""), exit_code=1) == ["On program.cu 8:\nx[0] is 1, should be 2"]
