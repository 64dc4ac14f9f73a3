"""Any kind of output stream of the command. Each test runs a process, since streams belong to a process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rungs import named

from ladder.errors import LadderError
from ladder.operations import Problem, get_operation
from ladder.run.evaluation import Comparison, make_row
from ladder.show.render import comparison_table, comparison_tables, stages_table, story_table, verdict_line
from ladder.show.render.tables import shown_head_dims
from ladder.stages import Ladder, Stage, discover


def run(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell command in which ``ladder`` is this Python's command line."""
    function = f'ladder() {{ "{sys.executable}" -m ladder "$@"; }}; set -o pipefail; '
    words = ["bash", "-c", function + command]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment})


@pytest.mark.parametrize("command", ["bank ld 'lane * 128'", "exercise list", "doctor"])
def test_a_reader_that_leaves_is_no_wrong_stage(command: str) -> None:
    done = run(f"ladder {command} | true")
    assert done.returncode == 141 and done.stderr == ""


def test_a_full_disk_behind_the_output() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    done = run("ladder stages > /dev/full")
    assert done.returncode == 2 and done.stderr == "error: cannot write the output: No space left on device\n"


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    done = run(
        f"cd '{tmp_path}/gone' && rmdir ../gone && ladder exercise list", PYTHONPATH=os.pathsep.join(sys.path)
    )
    assert done.returncode == 2 and "the working directory is no longer there" in done.stderr


def test_a_closed_stderr_and_ascii_alone() -> None:
    command = f"ladder lines {named('v2')} --problem 1,1,16,16,32 2>&-"
    done = run(command, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "wavefronts" in done.stdout and done.stdout.isascii()


def test_a_closed_stdout_and_stdin() -> None:
    assert run("ladder stages >&- <&-").returncode == 0


def test_the_list_of_stages_fits_80_columns() -> None:
    """No number, dtype or name is cut, and ideas stay whole over few lines."""
    console = Console(width=80, record=True, file=io.StringIO())
    ladder = discover()
    console.print(stages_table(ladder))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    text = " ".join(" ".join(lines).split())
    for stage in ladder:
        [row] = [line.split() for line in lines if line.split()[:1] == [stage.name]]
        assert row[1:] == [*stage.dtypes, *shown_head_dims(stage.head_dims).split(), row[-1]]
        assert row[-1].startswith("sm_")
        assert stage.idea in text
    assert len(lines) <= 4 * len(list(ladder)) and max(map(len, lines)) <= 80


def test_a_narrow_terminal_has_several_tables_and_no_number_cut() -> None:
    rows = []
    for number in range(4):
        row = make_row(f"v{number}_a_long_name", "emulator", "sm_80", Problem(1, 1, 8, 8, 32, dtype="f32"))
        rows.append(row | {"conflicts": 123_456_789 * (number + 1), "error": 1.25e-5})
    comparison = Comparison(get_operation("attention"), rows)
    assert [len(comparison_tables(comparison, Ladder((), {}), width)) for width in (200, 60, 1)] == [1, 2, 4]
    names = (named("v1"), named("v2"), named("v3"), named("v4"))
    done = run(
        f"ladder compare --details {' '.join(names)} --problem 1,1,16,16,32 --backend emulator", COLUMNS="30"
    )
    assert done.returncode == 0
    for name in names:
        assert name in done.stdout
    assert "\N{HORIZONTAL ELLIPSIS}" not in done.stdout
    assert "B=1 H=1 N=16 M=16 d=32 on the emulator sm_80\n" in done.stdout


def test_twelve_rungs_fit_a_terminal() -> None:
    problem = Problem(1, 2, 256, 256, 64, dtype="f16")
    names = [f"v{number}_warpgroup" for number in range(1, 13)]
    counts = {"conflicts": 16_887_808, "wavefronts_ld": 17_432_576, "error": 1.25e-5, "lse_error": 1e-6}
    rows = [make_row(name, "emulator", "sm_90a", problem) | counts for name in names]
    tables = comparison_tables(Comparison(get_operation("attention"), rows), Ladder((), {}), 80)
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        for table in tables:
            console.print(table)
    shown = capture.get()
    assert 1 < len(tables) < 12 and all(name in shown for name in names)
    assert max(map(len, shown.splitlines())) <= 80 and "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert shown.count("17,432,576") == 12


def story_of(comparison: Comparison, ladder: Ladder) -> list[str]:
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(story_table(comparison, ladder))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_story_has_a_line_per_rung_and_fits_80_columns() -> None:
    problem = Problem(1, 2, 256, 256, 64, dtype="f16")
    counts = {
        "wavefronts_ld": 17_432_576,
        "wavefronts_st": 526_336,
        "wavefronts_gmma": 0,
        "conflicts": 16_887_808,
    }
    first = make_row("v1", "emulator", "sm_80", problem) | counts | {"passed": True, "mma_instructions": 9216}
    fewer = counts | {"wavefronts_ld": 147_456, "wavefronts_st": 4_608, "conflicts": 0}
    second = make_row("v2", "emulator", "sm_90a", problem) | fewer | {"wgmma_instructions": 1344}
    last = second | {"stage": "v9b_three_consumers", "wavefronts_gmma": None}
    comparison = Comparison(get_operation("attention"), [first, second | {"passed": False}, last])
    ladder = Ladder((stage("v1", None), stage("v2", "v1"), stage("v9b_three_consumers", "v2")), {})
    _, head, _, *rows = story_of(comparison, ladder)
    assert head.split() == ["rung", "right", "wavefronts", "fewer", "conflicts", "products"]
    assert rows[0].split() == ["v1", "yes", "17,958,912", "16,887,808", "9,216", "mma"]
    assert rows[1].split() == ["v2", "NO", "152,064", "118x", "0", "1,344", "wgmma"]
    assert rows[2].split()[2:] == ["0", "1,344", "wgmma"]  # a count that is not known has no sum
    assert max(map(len, [head, *rows])) <= 80


def test_the_verdict_names_what_is_wrong_and_what_has_no_result() -> None:
    problem = Problem(1, 1, 8, 8, 32, dtype="f32")
    rows = [make_row(name, "emulator", "sm_80", problem) | {"passed": name != "b"} for name in "abc"]
    comparison = Comparison(get_operation("attention"), rows)
    assert verdict_line(comparison) == "2 of 3 right; wrong: b"
    comparison.failed["d"] = LadderError("does not compile")
    assert verdict_line(comparison) == "2 of 4 right; wrong: b; no result: d"
    comparison.failed["b"] = LadderError("endless")
    assert verdict_line(comparison) == "2 of 4 right; wrong: b; no result: d, b"


def test_a_story_of_a_gpu_has_speeds_and_multiples_of_cudnn() -> None:
    problem = Problem(4, 16, 1024, 1024, 64, dtype="f16")
    timed = {"passed": True, "time_ms": 0.5, "tflops": 100.0}
    row = make_row(named("v3"), "cuda", "sm_90", problem) | timed
    peers = {"f16": {"torch matmul": 800.0, "torch cuDNN": 400.0}}
    _, head, _, line = story_of(
        Comparison(get_operation("attention"), [row], baselines=peers), Ladder((), {})
    )
    assert head.split() == ["rung", "right", "TFLOP/s", "x", "cuDNN"]
    assert line.split() == [named("v3"), "yes", "100.0", "0.25"]


def stage(name: str, before: str | None) -> Stage:
    return Stage(name, Path(name), name, "", before, (7, 5), ("f16",), (64,))


def test_the_rung_before_is_named_where_it_is_not_to_the_left() -> None:
    ladder = Ladder((stage("v1", None), stage("v2", "v1"), stage("v3", "v2"), stage("mine", "v2")), {})

    def named(*names: str) -> list[str]:
        problem = Problem(1, 1, 8, 8, 32, dtype="f32")
        rows = [make_row(name, "emulator", "sm_80", problem) | {"conflicts": 8} for name in names]
        console = Console(width=200, color_system=None)
        with console.capture() as capture:
            console.print(comparison_table(Comparison(get_operation("attention"), rows), ladder))
        line = next((line for line in capture.get().splitlines() if "which is" in line), "")
        return line.split()[2:]

    assert named("v1", "v2", "v3") == []
    assert named("v1", "v2", "mine", "v3") == ["v1", "v2", "v2"]
    assert named("v3", "v2", "v1") == ["v2", "v1"]
    assert named("v1", "v3") == []  # nothing to compare it with
