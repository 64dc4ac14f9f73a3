"""``ladder exercise``: list, start, check, watch, hint, reset."""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from ladder.cli.output import print_lines
from ladder.common import files
from ladder.common.terminal import console, errors, show_error
from ladder.common.wording import said
from ladder.errors import LadderError

if TYPE_CHECKING:
    from ladder.course.exercises import Exercise, Verdict, Workspace

#: Polling interval of the watched files.
_LOOK_S = 0.5


def add(commands: Any) -> None:
    """Adds ``exercise`` and its own subcommands to the argparse subparsers ``commands``."""
    text = "kernels with a gap: list, start, check, watch, hint, reset"
    exercise = commands.add_parser("exercise", help=text, description=text[0].upper() + text[1:] + ".")
    exercise.set_defaults(run=_list, folder=None)
    actions = exercise.add_subparsers(title="what to do; without an ACTION, list", metavar="ACTION")

    def action(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = actions.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + "."
        )
        parser.set_defaults(run=run)
        parser.add_argument(
            "--folder",
            type=Path,
            metavar="DIR",
            help="where the work is (my_exercises, here or in a folder above)",
        )
        return parser

    action("list", _list, "list the exercises and how far each has come")
    start = action("start", _start, "make a working copy; without a NAME, of the first one not yet solved")
    start.add_argument("name", nargs="?", metavar="NAME")
    check = action("check", _check, "say whether it is solved, and if not, what is wrong")
    check.add_argument(
        "name", nargs="?", metavar="NAME", help="default: that of this folder, or changed last"
    )
    check.add_argument("--all", action="store_true", help="all that have been started")
    check.add_argument("--json", metavar="FILE", help="also write the verdict there; - prints nothing else")
    text = "check at once and each time you save, and go on to the next exercise; Ctrl-C ends it"
    watch = action("watch", _watch, text)
    watch.add_argument(
        "name", nargs="?", metavar="NAME", help="where to begin; default: the one you are at, or the next"
    )
    hint = action("hint", _hint, "give a hint, one more each time")
    hint.add_argument("name", nargs="?", metavar="NAME", help="default: that of this folder, or changed last")
    reset = action("reset", _reset, "begin anew; the work so far is kept aside")
    reset.add_argument("name", metavar="NAME")


def _say(text: str, style: str | None = None) -> None:
    console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)


def _say_prose(text: str) -> None:
    from ladder.course.exercises import PROSE_WIDTH

    console.print(text, width=min(console.width, PROSE_WIDTH), highlight=False, markup=False)


def _list(options: argparse.Namespace) -> int:
    from ladder.course.exercises import Workspace, exercises

    workspace = Workspace(options.folder)
    table = Table(box=None, pad_edge=False)
    for heading in ("", said("exercise"), said("rung")):
        table.add_column(heading, no_wrap=True)
    table.add_column(said("what to write"))
    table.add_column(said("hints"), no_wrap=True)
    signs = {"solved": f"[green]{said('solved')}[/]", "started": f"[yellow]{said('started')}[/]"}
    for one in exercises():
        hints = said("{n} of {count}", n=workspace.progress(one).hints, count=len(one.hints))
        sign = signs.get(_state(workspace, one), "")
        table.add_row(sign, one.name, one.rung or said("a program"), _title(one), hints)
    console.print(table)
    are_sound = _show_broken()
    _say_how_many(workspace)
    following = _next(workspace)
    if following is None:
        _say(said("These are all hints."))
    elif workspace.is_started(following):
        _say(said("Go on with {name}: {path}", name=following.name, path=workspace.path(following)))
    else:
        _say_next(following)
    return 0 if are_sound else 1


def _title(exercise: Exercise) -> str:
    """The title in the reader's language; the English one, and an error, if the translation is broken."""
    from ladder.course.exercises import ExerciseError, worded

    try:
        return worded(exercise).title
    except ExerciseError as error:
        show_error(error)
        return exercise.title


def _show_broken() -> bool:
    """Shows the errors of exercises that cannot be read; returns whether there are none."""
    from ladder.course.exercises import broken_exercises

    for error in broken_exercises().values():
        show_error(error)
    return not broken_exercises()


def _say_next(following: Exercise | None) -> None:
    """Says how to start the exercise; None is after the last one."""
    if following is None:
        _say(said("That was the last one."))
    else:
        _say(said("Next: {command}", command=f"ladder exercise start {following.name}"))


def _say_how_many(workspace: Workspace) -> None:
    from ladder.course.exercises import exercises

    solved = sum(workspace.progress(one).solved for one in exercises())
    _say("\n" + said("{n} of {count} solved", n=solved, count=len(exercises())), "bold")


def _state(workspace: Workspace, exercise: Exercise) -> str:
    if workspace.progress(exercise).solved:
        return "solved"
    return "started" if workspace.is_started(exercise) else "not started"


def _next(workspace: Workspace, solved: Exercise | None = None) -> Exercise | None:
    """The next unsolved exercise: after ``solved`` in its rung, then in later rungs, then anywhere.

    The first programs are one group, those that come last another.
    """
    from ladder.course.exercises import exercises

    everything = exercises()
    if solved is not None:
        groups = list(dict.fromkeys((one.is_last, one.rung) for one in everything))
        own = (solved.is_last, solved.rung)
        first, place = groups.index(own), everything.index(solved)
        of_rung = [one for one in everything if (one.is_last, one.rung) == own]
        later = [one for one in everything if groups.index((one.is_last, one.rung)) > first]
        behind = [one for one in of_rung if everything.index(one) > place]
        everything = (*behind, *of_rung, *later, *everything)
    return next((one for one in everything if not workspace.progress(one).solved), None)


def _chosen(workspace: Workspace, name: str | None) -> Exercise:
    """The named exercise, or that of the working directory, or else the one changed last."""
    from ladder.course.exercises import ExerciseError, exercises, get_exercise

    if name is not None:
        return get_exercise(name)
    started = [one for one in exercises() if workspace.is_started(one)]
    if not started:
        raise ExerciseError(_nothing_in(workspace), "ladder exercise start")
    for one in started:
        if Path.cwd().is_relative_to(workspace.path(one)):
            return one
    return max(started, key=lambda one: _last_write(workspace, one))


def _nothing_in(workspace: Workspace) -> str:
    return said("no exercise has been started in {folder}", folder=workspace.folder)


def _start(options: argparse.Namespace) -> int:
    from ladder.course.exercises import Workspace, get_exercise

    workspace = Workspace(options.folder, may_be_new=True)
    exercise = get_exercise(options.name) if options.name else _next(workspace)
    if exercise is None:
        _say(said("All exercises are solved."))
        return 0
    started = workspace.is_started(exercise)
    if not started:
        workspace.start(exercise)
    else:
        _say(said("{name} was started before; its lines are unchanged.", name=exercise.name))
    _show_task(workspace, exercise)
    return 0


def _show_task(workspace: Workspace, exercise: Exercise) -> None:
    folder = _folder_option(workspace)
    _show_what_to_write(workspace, exercise)
    _say(said("Then:  {command}", command=f"ladder exercise check {exercise.name}{folder}"))
    _say(said("Or:    {command}    (checks each time you save)", command=f"ladder exercise watch{folder}"))
    _say(said("Stuck: {command}", command=f"ladder exercise hint {exercise.name}{folder}"))


def _show_what_to_write(workspace: Workspace, exercise: Exercise) -> None:
    from ladder.course.exercises import PICTURE, gap_line, worded

    path = workspace.path(exercise)
    shown = worded(exercise)
    _say(f"{shown.title}\n", "bold")
    _say_prose(f"{shown.task}\n")
    if (path / PICTURE).is_file():
        _say(said("Picture: {path}", path=_near(path / PICTURE)))
    place = f"{_near(path / exercise.gap.file)}:{gap_line(exercise, path)}"
    _say(said("Write here: {place}", place=place))


def _folder_option(workspace: Workspace) -> str:
    return "" if _is_found(workspace) else f" --folder {_near(workspace.folder)}"


def _is_found(workspace: Workspace) -> bool:
    """Whether commands find this workspace without ``--folder``."""
    from ladder.stages import OWN_EXERCISES, own_folder

    return own_folder(OWN_EXERCISES) == workspace.folder


def _near(path: Path) -> Path:
    """The path relative to the working directory if it lies below it."""
    relative = Path(os.path.relpath(path))
    return relative if relative.parts and relative.parts[0] != ".." else path


def _check(options: argparse.Namespace) -> int:
    from ladder.course.exercises import Workspace, exercises

    workspace = Workspace(options.folder)
    if options.all:
        if options.name:
            raise LadderError(
                said("--all and {name} at once", name=options.name), said("Leave out one of them.")
            )
        wanted = list(exercises())
        _show_broken()
        _warn_of_nothing(workspace, wanted)
    else:
        wanted = [_chosen(workspace, options.name)]
    rows = [_checked(workspace, exercise, options) for exercise in wanted]
    if options.all and options.json != "-":
        solved = sum(row["state"] == "solved" for row in rows)
        _say(said("{n} of {count} solved", n=solved, count=len(rows)))
    _write_json(options.json, rows)
    return 0 if all(row["state"] == "solved" for row in rows) else 1


def _checked(workspace: Workspace, exercise: Exercise, options: argparse.Namespace) -> dict[str, Any]:
    """Checks an exercise, unless it is one of all and not started, and shows the verdict; returns its row."""
    from ladder.course.exercises import check

    row: dict[str, Any] = {"exercise": exercise.name, "rung": exercise.rung, "title": exercise.title}
    if options.all and not workspace.is_started(exercise):
        return {**row, "state": "not started", "hints": workspace.progress(exercise).hints}
    began = time.monotonic()
    verdict = check(workspace, exercise)
    seconds = round(time.monotonic() - began, 1)
    _keep(workspace, verdict)
    if options.json != "-":
        _show_verdict(workspace, verdict, brief=options.all)
        if verdict.passed and not options.all:
            _say_next(_next(workspace, exercise))
    return {
        **row,
        "state": "solved" if verdict.passed else "wrong",
        "hints": workspace.progress(exercise).hints,
        "right": verdict.right,
        "wrong": verdict.wrong,
        "findings": [{"kind": one.kind, "text": one.text} for one in verdict.findings],
        "unused_files": verdict.unused_files,
        "protections": verdict.protections,
        "seconds": seconds,
    }


def _watch(options: argparse.Namespace) -> int:
    """Shows the task, checks at once and after each save, and starts the next exercise when one is solved."""
    from ladder.course.exercises import Workspace, check

    workspace = Workspace(options.folder)
    exercise = _to_watch(workspace, options.name)
    try:
        while exercise is not None:
            if not workspace.is_started(exercise):
                workspace.start(exercise)
            _show_what_to_write(workspace, exercise)
            _say(said("Save the file, and it is checked. Ctrl-C ends this.") + "\n", "dim")
            seen = _times(workspace)
            while True:
                verdict = check(workspace, exercise)
                _keep(workspace, verdict)
                _show_verdict(workspace, verdict, brief=False)
                if verdict.passed:
                    break
                exercise, seen = _saved(workspace, seen)
                _say("")
            exercise = _next(workspace, exercise)
            _say("")
        _say_next(None)
    except KeyboardInterrupt:
        _say_how_many(workspace)
    return 0


def _to_watch(workspace: Workspace, name: str | None) -> Exercise | None:
    """The named exercise, or the one being worked on, or else the next one."""
    from ladder.course.exercises import exercises, get_exercise

    if name is not None:
        return get_exercise(name)
    if not any(_state(workspace, one) == "started" for one in exercises()):
        return _next(workspace)
    chosen = _chosen(workspace, None)
    return _next(workspace, chosen) if workspace.progress(chosen).solved else chosen


def _saved(workspace: Workspace, seen: dict[str, float]) -> tuple[Exercise, dict[str, float]]:
    """Waits until a started exercise is saved; returns it with the times of all."""
    from ladder.course.exercises import get_exercise

    while True:
        time.sleep(_LOOK_S)
        now = _times(workspace)
        for name in now:
            if now[name] > seen.get(name, now[name]):
                return get_exercise(name), {**now, **{other: seen[other] for other in seen if other != name}}
        seen = {**now, **seen}


def _times(workspace: Workspace) -> dict[str, float]:
    """When each exercise started was last written, by name."""
    from ladder.course.exercises import exercises

    return {one.name: _last_write(workspace, one) for one in exercises() if workspace.is_started(one)}


def _last_write(workspace: Workspace, exercise: Exercise) -> float:
    """When a file of the working copy was last written.

    Hidden files belong to editors, and any file may vanish for a moment while an editor saves it.
    """
    times = [0.0]
    for path in workspace.path(exercise).rglob("[!.]*"):
        with suppress(FileNotFoundError):
            times.append(path.stat().st_mtime)
    return max(times)


def _warn_of_nothing(workspace: Workspace, wanted: list[Exercise]) -> None:
    """Warns if no exercise has been started, since the folder may be the wrong one.

    Raises :class:`LadderError` if the right one lies inside it.
    """
    from ladder.stages import OWN_EXERCISES

    if any(workspace.is_started(exercise) for exercise in wanted):
        return
    nothing, within = _nothing_in(workspace), workspace.folder / OWN_EXERCISES
    if within.is_dir():
        raise LadderError(nothing, said("Did you mean --folder {folder}?", folder=_near(within)))
    errors.print(nothing, style="yellow", highlight=False, soft_wrap=True, markup=False)


def _keep(workspace: Workspace, verdict: Verdict) -> None:
    try:
        workspace.keep_try(verdict.exercise, solved=verdict.passed)
    except LadderError as error:
        text = said("{error}: this check is not recorded", error=error.message)
        errors.print(text, style="dim", highlight=False, markup=False)


def _show_verdict(workspace: Workspace, verdict: Verdict, *, brief: bool) -> None:
    from ladder.course.exercises import afterword_lines, gap_text, verdict_lines

    exercise = verdict.exercise
    lines = list(verdict_lines(verdict))
    print_lines(lines[:1] if brief else lines)
    if brief:
        for finding in verdict.findings[:1]:
            _say("  " + " ".join(finding.text.splitlines()[:2]))
    elif verdict.passed:
        print_lines(afterword_lines(verdict, gap_text(exercise, workspace.path(exercise))))
        _say_how_many(workspace)
    elif (left := len(exercise.hints) - workspace.progress(exercise).hints) > 0:
        command = f"ladder exercise hint {exercise.name}{_folder_option(workspace)}"
        _say("\n" + said("Stuck? {command}    ({left} left)", command=command, left=left), "dim")


def _write_json(target: str | None, rows: list[dict[str, Any]]) -> None:
    text = json.dumps(rows, indent=2)
    if target == "-":
        print(text)
    elif target:
        files.write(Path(target), f"{text}\n".encode())


def _hint(options: argparse.Namespace) -> int:
    from ladder.course.exercises import Workspace

    workspace = Workspace(options.folder)
    exercise = _chosen(workspace, options.name)
    seen = workspace.progress(exercise).hints
    number, text = workspace.next_hint(exercise)
    if seen == len(exercise.hints):
        _say(said("There are no more hints; this is the last one again."), "dim")
    _say(said("Hint {n} of {count}, {name}:", n=number, count=len(exercise.hints), name=exercise.name))
    _say_prose(text)
    return 0


def _reset(options: argparse.Namespace) -> int:
    from ladder.course.exercises import Workspace, get_exercise

    workspace = Workspace(options.folder)
    exercise = get_exercise(options.name)
    backup = workspace.reset(exercise)
    if backup is not None:
        _say(said("Your work so far is kept in {path}.", path=_near(backup)) + "\n")
    _show_task(workspace, exercise)
    return 0
