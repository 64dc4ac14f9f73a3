"""``ladder port``: a fix of a rung merged into the rungs that stand on it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ladder.cli import main
from ladder.errors import LadderError
from ladder.stages import port

#: A rung's name for {}.
KERNEL = """// {}: a kernel
a();
b();
c();
load();
wait();
multiply();
store();
d();
e();
check("{}: launch");
"""
TOML = """title = "A rung"
idea = "An idea"
{}min_compute_capability = "7.5"
dtypes = ["f32"]
head_dims = [32]
"""


@pytest.fixture
def ladder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """z1 <- z2 <- z3 <- z4 and z2 <- z5, committed. z2 changes the end, z3 the lines that the fix changes,
    z4 stands on z3, but has z2's lines there, and z5 has no such file."""
    z1 = KERNEL.format("z1", "z1")
    z2 = KERNEL.format("z2", "z2").replace("d();\n", "d();\nmore();\n")
    z3 = z2.replace("z2", "z3").replace("wait();\nmultiply();\n", "wait_and_multiply();\n")
    z4 = z2.replace("z2", "z4").replace("a();\n", "")
    rungs = {
        "z1": (None, z1),
        "z2": ("z1", z2),
        "z3": ("z2", z3),
        "z4": ("z3", z4),
        "z5": ("z2", "other();\n"),
    }
    for name, (before, text) in rungs.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "stage.toml").write_text(TOML.format(f'before = "{before}"\n' if before else ""))
        (folder / "kernel.cu").write_text(text)
        if name != "z5":
            (folder / "loop.h").write_text(text)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "Rungs"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fix(folder: Path) -> Path:
    """A barrier after the wait, in the lowest rung's loop.h."""
    path = folder / "z1" / "loop.h"
    path.write_text(path.read_text().replace("wait();\n", "wait();\nbarrier();\n"))
    return path


def test_a_fix_is_merged_and_what_does_not_apply_is_shown(ladder: Path) -> None:
    merges = {merge.stage.name: merge for merge in port(fix(ladder))}
    assert list(merges) == ["z2", "z3", "z4"]
    for name in ("z2", "z4"):
        now = (ladder / name / "loop.h").read_text()
        assert merges[name].applies and merges[name].text == now.replace("wait();\n", "wait();\nbarrier();\n")
    (conflict,) = merges["z3"].conflicts
    assert not merges["z3"].applies
    assert (conflict.ours, conflict.before) == ("wait_and_multiply();\n", "wait();\nmultiply();\n")
    assert conflict.after == "wait();\nbarrier();\nmultiply();\n"


def test_the_names_of_rungs_are_no_differences(ladder: Path) -> None:
    path = ladder / "z1" / "loop.h"
    path.write_text(path.read_text().replace('check("z1: launch");', 'check("z1: launch", stream);'))
    merges = port(path)
    assert [merge.applies for merge in merges] == [True, True, True]
    assert f'check("{merges[-1].stage.name}: launch", stream);' in merges[-1].text


def test_a_rung_that_has_the_fix_stays(ladder: Path) -> None:
    path = fix(ladder)
    (ladder / "z2" / "loop.h").write_text(port(path)[0].text)
    again = port(path)
    assert again[0].stage.name == "z2" and not again[0].applies and not again[0].conflicts


def test_only_write_writes_and_only_whole_fixes(ladder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fix(ladder)
    kept = {name: (ladder / name / "loop.h").read_text() for name in ("z2", "z3", "z4")}
    assert main(["port", str(path)]) == 1
    assert {name: (ladder / name / "loop.h").read_text() for name in kept} == kept
    said = capsys.readouterr().out
    assert "z2: applies\n" in said and "+barrier();" in said
    assert "z3: 1 parts do not apply" in said and "wait_and_multiply();" in said
    assert "3 rungs above: 2 to write, with --write, 1 with parts that do not apply" in said
    assert main(["port", str(path), "--write"]) == 1
    assert "z4: written" in capsys.readouterr().out
    assert "barrier();" in (ladder / "z2" / "loop.h").read_text()
    assert (ladder / "z3" / "loop.h").read_text() == kept["z3"]


def test_a_fix_that_is_committed(ladder: Path) -> None:
    path = fix(ladder)
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "Fix"]
    subprocess.run(commit, cwd=ladder, check=True)
    with pytest.raises(LadderError, match=r"loop\.h of z1 has not changed since HEAD"):
        port(path)
    assert [merge.applies for merge in port(path, "HEAD~1")] == [True, False, True]


def test_bad_input(ladder: Path) -> None:
    with pytest.raises(LadderError, match="is no file of a rung"):
        port(ladder / "z1" / "missing.h")
    with pytest.raises(LadderError, match="is no file of a rung"):
        port(Path(__file__))
    with pytest.raises(LadderError, match=r"git cannot show .* at nothing"):
        port(fix(ladder), "nothing")
