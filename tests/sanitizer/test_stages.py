"""Rungs under the sanitizer: the ladder's own are clean, and one with a line taken out is not."""

import shutil
from pathlib import Path

import pytest

from ladder.check import check_stage
from ladder.cli import main
from ladder.stages import discover

STAGES = Path(__file__).parents[2] / "stages"


@pytest.mark.parametrize("stage", ["v1_minimal", "v2_warp_mma", "v3_swizzle", "v4_tk_tiles"])
def test_the_ladder_is_clean(stage: str) -> None:
    assert check_stage(stage) == []


@pytest.fixture
def broken_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """v1 with its barrier before K and V are overwritten taken out."""
    folder = tmp_path / "broken"
    shutil.copytree(STAGES / "v1_minimal", folder, ignore=shutil.ignore_patterns("test_*"))
    source = (folder / "kernel.cu").read_text()
    assert source.count("__syncthreads()") >= 2
    (folder / "kernel.cu").write_text(source.replace("__syncthreads();", "", 1))
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    return folder


def test_a_missing_barrier_is_found_with_both_lines(broken_stage: Path) -> None:
    findings = check_stage(discover()["broken"])
    races = [finding for finding in findings if finding.kind == "race between warps"]
    assert races
    for race in races:
        assert race.who and race.other and race.who.warp != race.other.warp
        assert race.who.file.endswith("kernel.cu") and race.other.line > 0
        assert race.count > 0 and race.space == "shared"


def test_the_command_reports_and_fails(broken_stage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = ["--problem", "1,1,64,64,32"]
    assert main(["check", "broken", *problem]) == 1
    text = capsys.readouterr().out
    assert "race between warps" in text and "__syncthreads()" in text and "kernel.cu:" in text
    assert main(["check", "v1_minimal", *problem, "--json", "-"]) == 0
    assert capsys.readouterr().out.strip() == "[]"
