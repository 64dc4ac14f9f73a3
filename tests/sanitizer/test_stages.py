"""Rungs under the sanitizer: the ladder's own are clean, and one with a line removed is not."""

import shutil
from pathlib import Path

import pytest
from corpus_runs import Mutant, dtype_of, is_mutant_caught, mutants, write_rungs_stage
from rungs import named

from ladder.cli import main
from ladder.compile import Remark
from ladder.operations import Problem
from ladder.run.emulator import Finding
from ladder.run.evaluation import check_stage
from ladder.stages import discover

STAGES = Path(__file__).parents[2] / "stages"


@pytest.mark.parametrize(
    "stage",
    [
        named("v1"),
        named("v1b"),
        named("v2"),
        named("v3"),
        named("v4"),
        named("v5"),
        named("v6"),
    ],
)
def test_the_ladder_is_clean(stage: str) -> None:
    assert check_stage(stage) == []


@pytest.fixture
def broken_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """v1 without the barrier before K and V are overwritten."""
    folder = tmp_path / "broken"
    shutil.copytree(STAGES / named("v1"), folder, ignore=shutil.ignore_patterns("test_*"))
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
    assert main(["check", "v1", *problem, "--json", "-"]) == 0
    assert capsys.readouterr().out.strip() == "[]"


SLOW = "Potential Performance Loss: wgmma.mma_async instructions are serialized due to "


@pytest.mark.parametrize(
    ("message", "is_undefined"),
    [
        (SLOW + "insufficient register resources for the wgmma pipeline", False),
        (SLOW + "the presence of Extern calls", False),
        (SLOW + "wgmma pipeline crossing function boundary at a function call", False),
        (
            SLOW + "non wgmma instructions reading accumulator registers of  a wgmma between start and end",
            True,
        ),
        (
            SLOW + "non wgmma instructions defining accumulator registers of a wgmma between start and end",
            True,
        ),
        (SLOW + "non wgmma instructions defining input registers of a wgmma between start and end", True),
        (SLOW + "program dependence on compiler-inserted WG.DP in divergent path", True),
        ("warpgroup.arrive is injected by compiler to allow use of registers in GMMA", True),
        ("warpgroup.wait is injected by compiler to allow use of registers defined by GMMA", True),
    ],
)
def test_remarks_of_ptxas_are_findings_if_the_result_is_undefined(
    message: str, is_undefined: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = str(STAGES / named("v1") / "kernel.cu")
    remark = Remark("C7599", message, kernel, 1, kernel, 1)
    monkeypatch.setattr("ladder.run.evaluation.sanitizing.remarks.read", lambda folder: (remark,))
    words = [named("v1"), "--problem", "1,1,64,64,32"]
    assert main(["check", *words]) == int(is_undefined)
    checked = capsys.readouterr().out
    assert "C7599" in checked and "kernel.cu:1" in checked and checked.count("kernel.cu:1") == 1
    assert ("clean" not in checked) == ("undefined registers" in checked) == is_undefined


def test_remarks_of_ptxas_are_shown_beside_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = str(STAGES / named("v1") / "kernel.cu")
    remark = Remark("C7519", "warpgroup.arrive is injected", kernel, 1, kernel, 1)
    monkeypatch.setattr("ladder.run.evaluation.sanitizing.remarks.read", lambda folder: (remark,))
    assert main(["lines", "v1", "--problem", "1,1,64,64,32"]) == 0
    text = capsys.readouterr().out
    assert "C7519" in text and "kernel.cu:1" in text and "wgmma.fence is missing" in text


@pytest.mark.parametrize("name", ["v1_m_uninitialised", "v1_workspace_freed_early"])
def test_memory_that_a_stage_allocates_is_tracked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus's mutants as stages: `check` finds in them what `emulate --check` finds."""
    mutant = next(mutant for mutant in mutants() if mutant.name == name)
    folder = tmp_path / "mutant"
    shutil.copytree(discover()[mutant.stage].path, folder, ignore=shutil.ignore_patterns("test_*"))
    (folder / "kernel.cu").write_text(mutant.source())
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    findings = check_stage(discover()["mutant"], [Problem(1, 1, 64, 64, 32)])
    assert is_mutant_caught(mutant, findings, 0)


#: Kinds whose line is one of the program's host code in `emulate --check`; `check` has the harness there.
WITHOUT_LINE = {"wrong result", "unwritten output", "bad launch"}


@pytest.mark.full
@pytest.mark.parametrize("stage", sorted({mutant.stage for mutant in mutants()}))
def test_check_finds_what_emulate_finds(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the corpus's mutants of a rung; only `emulate --check` finds leaks."""
    write_rungs_stage(stage, tmp_path / "rungs")
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    shapes = [
        Problem(1, 2, 100, 77, 64, kv_heads=1, is_causal=True, dtype=dtype_of(stage)),
        Problem(1, 2, 64, 128, 64, kv_heads=1, dtype=dtype_of(stage)),
    ]

    def findings_of(variant: str) -> list[Finding]:
        monkeypatch.setenv("VARIANT", variant)
        return check_stage(discover()["rungs"], shapes)

    def is_found(mutant: Mutant) -> bool:
        findings = findings_of(mutant.name)
        if mutant.kind in WITHOUT_LINE:
            return any(finding.kind == mutant.kind for finding in findings)
        return is_mutant_caught(mutant, findings, 0) or mutant.kind == "leak"

    assert findings_of(stage) == []
    assert [m.name for m in mutants() if m.stage == stage and not is_found(m)] == []
