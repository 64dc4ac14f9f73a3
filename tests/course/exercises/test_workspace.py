"""The student's folder and ``ladder exercise``: nothing is lost, and the check says what was changed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rungs import named

from ladder import stages
from ladder.cli import main
from ladder.cli.exercise import _last_write, _next
from ladder.course.exercises import (
    END,
    Exercise,
    ExerciseError,
    Verdict,
    Workspace,
    check_text,
    exercises,
    fill_gap,
    gap_text,
    get_exercise,
    read_exercise,
    solution_text,
)
from ladder.course.exercises.markers import other_files
from ladder.course.exercises.reading import _read_all

NAME = "v1_lse"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A working directory of one's own."""
    monkeypatch.delenv("LADDER_STAGES", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kernel(home: Path) -> Path:
    """The working copy of a started exercise."""
    assert main(["exercise", "start", NAME]) == 0
    return home / "my_exercises" / NAME / "kernel.cu"


def solve(kernel: Path) -> None:
    kernel.write_text(get_exercise(NAME).sources(solved=True)["kernel.cu"])


def test_exercises_of_somebody_else_are_not_run(kernel: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: kernel.stat().st_uid + 1)
    assert main(["exercise", "check"]) == 2
    assert "belongs to somebody else, and what is in it was not run" in capsys.readouterr().err
    assert main(["run", NAME]) == 2
    assert "belongs to somebody else" in capsys.readouterr().err
    monkeypatch.undo()


def test_an_exercise_that_ends_the_process_is_not_solved(kernel: Path, capsys) -> None:
    """Between the marks, by the initialiser of a global variable."""
    solve(kernel)
    before, mark, after = kernel.read_text().partition(END)
    lines = before.splitlines(keepends=True)
    ending = "}\nconst int gone = (::exit(0), 0);\n__device__ void rest() {\n"
    kernel.write_text("".join(lines[:-1]) + ending + lines[-1] + mark + after)
    assert main(["exercise", "check", NAME]) == 1
    assert "exit code 0" in capsys.readouterr().out
    assert not Workspace().progress(get_exercise(NAME)).solved


def test_from_start_to_solved(home: Path, capsys) -> None:
    assert main(["exercise", "start", NAME]) == 0
    kernel = home / "my_exercises" / NAME / "kernel.cu"
    assert f"my_exercises/{NAME}/kernel.cu:" in capsys.readouterr().out
    assert main(["exercise", "check"]) == 1
    out = capsys.readouterr().out
    assert "not yet" in out and "lse is wrong in 80 of 80 rows, o is right everywhere" in out
    solve(kernel)
    assert main(["exercise", "check", NAME]) == 0
    assert f"solved {NAME}" in capsys.readouterr().out
    assert main(["exercise", "list"]) == 0
    listed = capsys.readouterr().out
    assert f"solved  {NAME}" in listed
    assert main(["exercise"]) == 0 and capsys.readouterr().out == listed
    # The record keeps it as solved, and the next exercise is another one.
    assert Workspace().progress(get_exercise(NAME)).solved
    assert main(["exercise", "start"]) == 0
    assert exercises()[0].title in capsys.readouterr().out


OTHER = "v1_kv_head"


def test_a_working_copy_hides_what_an_unsolved_exercise_asks_for(kernel: Path) -> None:
    other = get_exercise(OTHER)
    [line] = solution_text(other).splitlines()
    assert line not in kernel.read_text() and f'#include "others/{OTHER}.h"' in kernel.read_text()
    assert line in (kernel.parent / "others" / f"{OTHER}.h").read_text()
    assert other_files(get_exercise(NAME), kernel.parent) == []
    # Once that one is solved there is nothing to hide.
    Workspace().keep_try(other, solved=True)
    Workspace().reset(get_exercise(NAME))
    assert line in kernel.read_text() and OTHER not in kernel.read_text()
    assert not (kernel.parent / "others" / f"{OTHER}.h").exists()


def test_hidden_lines_are_compiled_and_must_stay(kernel: Path, capsys) -> None:
    fill_gap(get_exercise(NAME), kernel.parent, solution_text(get_exercise(NAME)))
    assert main(["exercise", "check", NAME]) == 0
    hidden = kernel.parent / "others" / f"{OTHER}.h"
    hidden.write_text(hidden.read_text() + "// mine\n")
    assert main(["exercise", "check", NAME]) == 1
    assert f"others/{OTHER}.h:" in capsys.readouterr().out


def test_a_cell_and_the_command_line_share_the_work(home: Path, capsys) -> None:
    """``check_text`` starts the exercise, fills its gap and records that it is solved."""
    exercise = get_exercise(NAME)
    wrong = check_text(NAME, exercise.gap.skeleton)
    assert not wrong.passed and "lse is wrong in 80 of 80 rows" in wrong.findings[0].text
    lines = """
      for (int row = threadIdx.x; row < p.q_len; row += kBr)
          p.lse[first_row + row] = m_gmem[row] + logf(l_gmem[row]);"""
    assert check_text(NAME, lines).passed
    folder = home / "my_exercises" / NAME
    assert gap_text(exercise, folder).splitlines()[1].startswith("    p.lse[first_row + row] = ")
    assert Workspace().progress(exercise).solved
    (folder / "kernel.cu").write_text("// nothing is left\n")
    with pytest.raises(ExerciseError, match="needs exactly one line // begin exercise"):
        check_text(NAME, lines)


def test_directives_stay_at_the_left_edge(home: Path) -> None:
    exercise = get_exercise("v2_row_max")
    folder = Workspace(may_be_new=True).start(exercise)
    text = "#pragma unroll\nfor (int mask = 8; mask > 0; mask /= 2)\n  x;"
    fill_gap(exercise, folder, text)
    assert gap_text(exercise, folder) == text
    assert "#pragma unroll\n    for (int mask" in (folder / "kernel.cu").read_text()


def test_starting_again_leaves_the_work(kernel: Path, capsys) -> None:
    kernel.write_text(kernel.read_text() + "// mine\n")
    assert main(["exercise", "start", NAME]) == 0
    assert "was started before" in capsys.readouterr().out
    assert kernel.read_text().endswith("// mine\n")


def test_reset_keeps_the_work_aside(home: Path, kernel: Path, capsys) -> None:
    skeleton = kernel.read_text()
    for number in (1, 2):
        kernel.write_text(f"// attempt {number}")
        assert main(["exercise", "reset", NAME]) == 0
        backup = Path("my_exercises") / ".backups" / f"{NAME}-{number}"
        assert str(backup) in capsys.readouterr().out
        assert (home / backup / "kernel.cu").read_text() == f"// attempt {number}"
        assert kernel.read_text() == skeleton


def test_in_its_folder_an_exercise_needs_no_name(home: Path, kernel: Path, monkeypatch, capsys) -> None:
    main(["exercise", "start", "v1_rescale"])
    capsys.readouterr()
    main(["exercise", "hint"])
    assert "v1_rescale" in capsys.readouterr().out
    monkeypatch.chdir(kernel.parent)
    main(["exercise", "hint"])
    assert f"Hint 1 of 3, {NAME}" in capsys.readouterr().out
    assert main(["exercise", "reset", NAME]) == 0
    assert (Path.cwd() / "kernel.cu").samefile(kernel)


def test_one_more_hint_each_time(kernel: Path, capsys) -> None:
    hints = get_exercise(NAME).hints
    capsys.readouterr()
    for number, hint in enumerate(hints, start=1):
        assert main(["exercise", "hint"]) == 0
        out = capsys.readouterr().out
        assert f"Hint {number} of {len(hints)}" in out and hint in out
    main(["exercise", "hint", NAME])
    assert "no more hints" in capsys.readouterr().out


def test_changes_outside_the_markers_are_shown(kernel: Path, capsys) -> None:
    solve(kernel)
    kernel.write_text(kernel.read_text().replace("float l_tile = 0.f;", "float l_tile = 1.f;"))
    assert main(["exercise", "check", NAME]) == 1
    out = capsys.readouterr().out
    line = kernel.read_text().splitlines().index("      float l_tile = 1.f;") + 1
    assert f"kernel.cu:{line}" in out
    assert "was        float l_tile = 0.f;" in out and "is         float l_tile = 1.f;" in out


def test_markers_must_stay(kernel: Path, capsys) -> None:
    kernel.write_text("\n".join(x for x in kernel.read_text().splitlines() if END not in x))
    assert main(["exercise", "check", NAME]) == 1
    assert END in capsys.readouterr().out


def test_more_lines_and_blanks_are_no_change(kernel: Path) -> None:
    solve(kernel)
    text = (
        kernel.read_text().replace(f"  {END}", f"    // said\n    // twice\n  {END}").replace(";\n", "; \n")
    )
    kernel.write_text(text)
    assert main(["exercise", "check", NAME]) == 0


def test_a_spoilt_stage_toml_does_not_matter(kernel: Path) -> None:
    solve(kernel)
    (kernel.parent / "stage.toml").write_text("dtypes = [")
    assert main(["exercise", "check", NAME]) == 0


def test_a_compiler_error_is_shown(kernel: Path, capsys) -> None:
    kernel.write_text(kernel.read_text().replace("= logf(", "= lagf("))
    assert main(["exercise", "check", NAME]) == 1
    assert 'identifier "lagf" is undefined' in capsys.readouterr().out


def test_an_endless_loop_ends(kernel: Path, capsys) -> None:
    text = kernel.read_text()
    kernel.write_text(text.replace(f"  {END}", f"    for (;;)\n      __syncthreads();\n  {END}"))
    assert main(["exercise", "check", NAME]) == 1
    assert "Is a loop endless" in capsys.readouterr().out


def test_a_fault_is_laid_out_with_the_students_line_first(kernel: Path, capsys) -> None:
    text = kernel.read_text()
    line = 1 + text[: text.index(END)].count("\n")
    kernel.write_text(text.replace(f"  {END}", f"    *(float2 *)(l_gmem + 1) = float2{{}};\n  {END}", 1))
    assert main(["exercise", "check", NAME]) == 1
    lines = capsys.readouterr().out.splitlines()
    [at] = [one for one in lines if one.startswith("  at ")]
    assert at.split()[:4] == ["at", f"kernel.cu:{line}", "*(float2", "*)(l_gmem"]
    after = lines[lines.index(at) + 1 :]
    assert after[0].startswith("  an access of 8 bytes")
    assert after[1].startswith("  An access of n bytes needs")
    assert max(map(len, lines)) <= 110 and len(lines) <= 12


PROGRAM = "cuda_transpose"


@pytest.fixture
def program(home: Path) -> Path:
    """The working copy of an exercise that is a program."""
    assert main(["exercise", "start", PROGRAM]) == 0
    return home / "my_exercises" / PROGRAM / "program.cu"


def test_a_program_has_its_picture_beside_it(capsys, program: Path) -> None:
    drawing = get_exercise(PROGRAM).drawing()
    assert drawing is not None
    assert (program.parent / "picture.svg").read_text() == drawing.svg()
    assert f"![{drawing.alt}](picture.svg)" in (program.parent / "README.md").read_text()
    assert f"Picture: my_exercises/{PROGRAM}/picture.svg" in capsys.readouterr().out
    assert other_files(get_exercise(PROGRAM), program.parent) == []


def test_a_program_is_checked_and_what_to_read_comes_after(program: Path, capsys) -> None:
    assert main(["exercise", "check"]) == 1
    assert "right, but more expensive than needed: 3,968 conflicts, at most 0." in capsys.readouterr().out
    exercise = get_exercise(PROGRAM)
    fill_gap(exercise, program.parent, "__shared__ float tile[kTile][kTile + 5];")
    assert main(["exercise", "check"]) == 0
    out = capsys.readouterr().out
    assert "- __shared__ float tile[kTile][kTile + 5];" in out
    assert "+ __shared__ float tile[kTile][kTile + 1];" in out
    assert "Also right, any odd number of words more:" in out and exercise.afterword in " ".join(out.split())
    assert "wavefronts of loads" in out and " conflicts" not in out.split("What the hardware")[1]
    assert f"1 of {len(exercises())} solved" in out


def test_a_program_that_does_not_compile_faults_or_is_changed(program: Path, capsys) -> None:
    text = program.read_text()
    exercise = get_exercise(PROGRAM)
    fill_gap(exercise, program.parent, "__shared__ float tile[kTile][kTiles];")
    assert main(["exercise", "check"]) == 1
    assert 'identifier "kTiles" is undefined' in capsys.readouterr().out
    fill_gap(exercise, program.parent, "__shared__ float tile[kTile / 2][kTile];")
    assert main(["exercise", "check"]) == 1
    assert "out of bounds" in capsys.readouterr().out
    program.write_text(text.replace("return 1;", "return 0;"))
    assert main(["exercise", "check"]) == 1
    assert "Change only lines between the markers" in capsys.readouterr().out


def test_watch_checks_at_once_and_goes_on_when_one_is_solved(program: Path, monkeypatch, capsys) -> None:
    """Polls: nothing new, the file saved, so that the next exercise begins; nothing new; and then Ctrl-C."""
    looks = []
    following = _next(Workspace(), get_exercise(PROGRAM))

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            assert f"not yet {PROGRAM}" in capsys.readouterr().out
            fill_gap(get_exercise(PROGRAM), program.parent, "__shared__ float tile[kTile][kTile + 1];")
            os.utime(program, (time.time() + 5, time.time() + 5))
        if len(looks) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("ladder.cli.exercise.time.sleep", sleep)
    assert main(["exercise", "watch"]) == 0
    out = capsys.readouterr().out
    assert following is not None and f"1 of {len(exercises())} solved" in out
    places = [out.index(text) for text in (f"solved {PROGRAM}", following.title, f"not yet {following.name}")]
    assert places == sorted(places)
    assert (program.parents[1] / following.name / following.main_file).is_file()
    record = Workspace()
    assert [record.progress(one).tries for one in (get_exercise(PROGRAM), following)] == [2, 1]


def test_watch_begins_where_one_is(home: Path, kernel: Path, monkeypatch, capsys) -> None:
    """At the exercise begun last, at the one named, or else at the next one; and it ends after the last."""
    begun: list[str] = []

    def check(workspace: Workspace, exercise: Exercise) -> Verdict:
        begun.append(exercise.name)
        if len(begun) in (1, 2):
            raise KeyboardInterrupt
        return Verdict(exercise)

    monkeypatch.setattr("ladder.course.exercises.check", check, raising=False)
    assert main(["exercise", "watch"]) == main(["exercise", "watch", PROGRAM]) == 0
    assert begun == [NAME, PROGRAM]
    monkeypatch.setattr("ladder.cli.exercise._next", lambda workspace, solved=None: None)
    capsys.readouterr()
    assert main(["exercise", "watch", NAME]) == 0
    assert "That was the last one." in capsys.readouterr().out


def test_what_an_editor_leaves_beside_a_file_is_no_save(program: Path) -> None:
    workspace, exercise = Workspace(), get_exercise(PROGRAM)
    before = _last_write(workspace, exercise)
    (program.parent / ".#program.cu").symlink_to("somebody@somewhere")  # an Emacs lock: a dangling link
    (program.parent / "4913").symlink_to("gone")
    swap = program.parent / ".program.cu.swp"
    swap.touch()
    os.utime(swap, (before + 5, before + 5))
    assert _last_write(workspace, exercise) == before
    os.utime(program, (before + 9, before + 9))
    assert _last_write(workspace, exercise) == before + 9


def test_the_first_rung_follows_the_first_programs() -> None:
    """And not the programs that come last."""
    programs = [one for one in exercises() if one.rung is None and not one.is_last]
    found = _next(Workspace(Path("mine"), may_be_new=True), programs[-1])
    assert found is not None and found.name == "cuda_map"
    workspace = Workspace(Path("mine"), may_be_new=True)
    for one in programs:
        workspace.keep_try(one, solved=True)
    found = _next(workspace, programs[-1])
    assert found is not None and found.rung == named("v1")


def test_next_is_of_the_same_rung_then_of_later_ones() -> None:
    names = [one.name for one in exercises()]
    of_rung = [one.name for one in exercises() if one.rung == get_exercise("v2_row_max").rung]
    workspace = Workspace(Path("mine"), may_be_new=True)

    def following(name: str) -> str | None:
        found = _next(workspace, get_exercise(name))
        return None if found is None else found.name

    place = of_rung.index("v2_row_max")
    assert following("v2_row_max") == of_rung[place + 1]
    for name in of_rung[place:]:
        workspace.keep_try(get_exercise(name), solved=True)
    assert following("v2_row_max") == of_rung[0]
    for name in of_rung:
        workspace.keep_try(get_exercise(name), solved=True)
    after = names.index(of_rung[-1]) + 1
    assert following("v2_row_max") == names[after]
    for name in names[after:]:
        workspace.keep_try(get_exercise(name), solved=True)
    assert following("v2_row_max") == names[0]


def test_barriers_of_the_block_are_counted(home: Path, capsys) -> None:
    exercise = get_exercise("v2_barriers")
    assert main(["exercise", "start", exercise.name]) == 0
    kernel = home / "my_exercises" / exercise.name / "kernel.cu"
    kernel.write_text(kernel.read_text().replace("// nothing yet", "__syncthreads(), __syncthreads();"))
    assert main(["exercise", "check", exercise.name]) == 1
    out = capsys.readouterr().out
    assert "right, but more expensive than needed: 24 block barriers, at most 16." in out


def test_all_as_json(kernel: Path, capsys) -> None:
    solve(kernel)
    capsys.readouterr()
    assert main(["exercise", "check", "--all", "--json", "-"]) == 1
    rows = {row["exercise"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [exercise.name for exercise in exercises()]
    assert rows[NAME]["state"] == "solved" and rows[NAME]["findings"] == []
    assert len(rows[NAME]["right"]) == len(get_exercise(NAME).cases)
    assert {row["state"] for name, row in rows.items() if name != NAME} == {"not started"}


def test_another_folder_can_be_named(home: Path, kernel: Path, tmp_path_factory, monkeypatch, capsys) -> None:
    solve(kernel)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert main(["exercise", "check", NAME, "--folder", str(home / "my_exercises")]) == 0
    assert main(["exercise", "check"]) == 2
    assert "no exercise has been started" in capsys.readouterr().err


@pytest.mark.parametrize("action", [["check", "--all"], ["check"], ["list"], ["hint"], ["reset", NAME]])
def test_a_folder_that_is_not_there_is_an_error(home: Path, capsys, action: list[str]) -> None:
    (home / "README.md").write_text("x")
    for folder, message in (("nonsense", "there is no folder"), ("README.md", "is no folder")):
        assert main(["exercise", *action, "--folder", folder]) == 2
        captured = capsys.readouterr()
        assert message in captured.err and captured.out == ""
    assert sorted(path.name for path in home.iterdir()) == ["README.md"]


def test_start_makes_the_folder_that_is_named(home: Path, capsys) -> None:
    assert main(["exercise", "start", NAME, "--folder", "mine"]) == 0
    assert (home / "mine" / NAME / "kernel.cu").is_file()
    assert main(["exercise", "start", "--folder", f"mine/{NAME}/kernel.cu"]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert main(["exercise", "start", "--folder", "/proc/mine"]) == 2
    message = capsys.readouterr().err
    assert "cannot write /proc/mine" in message and "--folder DIR" in message and "CACHE" not in message


def test_a_folder_in_which_nothing_is_begun(home: Path, capsys) -> None:
    """A participant who has started nothing gets a grade, but naming the folder above is an error."""
    (home / "anna").mkdir()
    assert main(["exercise", "check", "--all", "--folder", "anna"]) == 1
    captured = capsys.readouterr()
    assert f"0 of {len(exercises())} solved" in captured.out
    assert f"no exercise has been started in {home / 'anna'}" in captured.err
    (home / "anna" / "my_exercises").mkdir()
    assert main(["exercise", "check", "--all", "--folder", "anna"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Did you mean --folder anna/my_exercises?" in captured.err


def test_a_working_copy_answers_to_its_name_and_stays_out_of_comparisons(kernel: Path) -> None:
    ladder = stages.discover()
    assert ladder[NAME].kernel == kernel
    assert NAME not in [stage.name for stage in ladder]
    kernel.unlink()
    assert NAME not in stages.discover().broken


def test_what_is_refused(home: Path, capsys) -> None:
    assert main(["exercise", "start", "v1_ise"]) == 2
    assert "did you mean v1_lse?" in capsys.readouterr().err
    assert main(["exercise", "check", NAME]) == 2
    assert f"ladder exercise start {NAME}" in capsys.readouterr().err
    assert not (home / "my_exercises").exists()
    (home / "my_exercises").mkdir()
    (home / "my_exercises" / ".progress.json").write_text("{]")
    assert main(["exercise", "list"]) == 2
    assert "Delete it" in capsys.readouterr().err


GOOD = """
title = "T"
rung = "v1"
number = 1
owner = "thread"
task = "Do it."
hints = ["a"]
afterword = "Because."
gap = { first = "const int last_key", goal = "g", skeleton = "int x;" }
cases = [{ size = "1,1,1,1,32" }]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title", "tittle", "there is no title"),
        ('"T"', "3", "title = 3 is no str"),
        ("number = 1", 'number = 1\ncolour = "red"', "unknown key colour"),
        ('goal = "g", ', "", "gap: there is no goal"),
        ("1,1,1,1,32", "1,1", "cases 1: .*five whole numbers"),
        ('size = "1,1,1,1,32"', 'size = "1,1,1,1,32", at_most = { speed = 1 }', "no count of the table"),
        ('32" }]', '32", contexts = [1] }]', "attention has no contexts"),
        ('32" }]', '32", keys = ["4"] }]', "is no list of whole numbers"),
        ('"v1"', '"h1"', "is not H,d,lengths"),
        ("thread", "warp", "owner is thread or fragments"),
        ("= [{ size", "= { size", "not TOML"),
        ('["a"]', "[]", "at least one"),
        ('rung = "v1"\n', "", "there is no runs"),
        ('afterword = "Because."', "", "there is no afterword"),
    ],
)
def test_a_faulty_exercise_toml_says_where(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "exercise.toml").write_text(GOOD)
    read_exercise(tmp_path)
    (tmp_path / "exercise.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(ExerciseError, match=message):
        read_exercise(tmp_path)


@pytest.fixture
def exercises_folder(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """A folder with three of the exercises, in place of the project's."""
    for name in (NAME, OTHER, "v1_causal_mask"):
        shutil.copytree(get_exercise(name).folder, tmp_path / "exercises" / name)
    for module in ("reading", "definition"):
        monkeypatch.setattr(
            f"ladder.course.exercises.{module}.exercises_root", lambda: tmp_path / "exercises"
        )
    _read_all.cache_clear()
    yield tmp_path / "exercises"
    _read_all.cache_clear()


def test_an_exercise_that_cannot_be_read_affects_no_other(exercises_folder: Path, capsys) -> None:
    (exercises_folder / OTHER / "exercise.toml").write_text("title = [")
    toml = exercises_folder / "v1_causal_mask" / "exercise.toml"
    toml.write_text(toml.read_text().replace(f'rung = "{named("v1")}"', 'rung = "v77"'))
    assert main(["exercise", "list"]) == 1
    listed = capsys.readouterr()
    assert NAME in listed.out and "0 of 1 solved" in listed.out and OTHER not in listed.out
    assert f"{OTHER}/exercise.toml is not TOML" in listed.err and "there is no stage 'v77'" in listed.err
    assert main(["exercise", "check", "--all"]) == 1
    assert f"{OTHER}/exercise.toml is not TOML" in capsys.readouterr().err
    assert main(["exercise", "start"]) == 0 and f"{NAME}/kernel.cu" in capsys.readouterr().out
    assert main(["exercise", "hint", OTHER]) == 2
    assert f"{OTHER}/exercise.toml is not TOML" in capsys.readouterr().err


def test_arguments_of_a_run_are_quoted_as_in_a_shell(tmp_path: Path) -> None:
    of_a_program = GOOD.replace('rung = "v1"\n', "").replace("cases =", "runs =")
    (tmp_path / "exercise.toml").write_text(of_a_program.replace('size = "1,1,1,1,32"', 'arguments = "\'4"'))
    with pytest.raises(ExerciseError, match=r"runs 1: arguments = .*No closing quotation"):
        read_exercise(tmp_path)


@pytest.mark.parametrize("piece", ["no such line", "row", "for (int x"])
def test_an_exercise_that_no_longer_fits_its_rung_says_so(tmp_path: Path, piece: str) -> None:
    (tmp_path / "exercise.toml").write_text(GOOD.replace("const int last_key", piece))
    with pytest.raises(ExerciseError, match=r"does not fit its source: .*kernel\.cu"):
        read_exercise(tmp_path).sources(solved=False)
