"""Reads exercise.toml: all exercises in order, or one by name."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ladder.common.wording import said
from ladder.course.exercises.definition import (
    BLOCK_BARRIERS,
    GLOBAL_ATOMICS,
    Case,
    Edit,
    Exercise,
    Gap,
    Run,
    Share,
)
from ladder.course.exercises.table import ExerciseError, Table, read_table
from ladder.errors import InvalidProblem, StageError
from ladder.operations import Operation, get_operation
from ladder.run.emulator import COUNTERS
from ladder.stages import Ladder, discover, exercises_root


def exercises() -> tuple[Exercise, ...]:
    """The exercises that can be read: first the programs, then those on rungs, lowest first, then the
    programs that come last.
    """
    return _read_all()[0]


def broken_exercises() -> Mapping[str, ExerciseError]:
    """The errors of those that cannot be read, by name."""
    return _read_all()[1]


@functools.cache
def _read_all() -> tuple[tuple[Exercise, ...], Mapping[str, ExerciseError]]:
    ladder = discover()
    order: list[str | None] = [None, *(stage.name for stage in ladder)]
    found: list[Exercise] = []
    broken: dict[str, ExerciseError] = {}
    for path in sorted(exercises_root().glob("*/exercise.toml")):
        try:
            found.append(read_exercise(path.parent, ladder))
        except ExerciseError as error:
            broken[path.parent.name] = error
    found.sort(key=lambda one: (one.is_last, order.index(one.rung), one.number, one.name))
    return tuple(found), broken


def get_exercise(name: str) -> Exercise:
    """The exercise of that name. Raises its :class:`ExerciseError` if it cannot be read, and one that
    suggests a similar name if there is none.
    """
    import difflib

    if name in broken_exercises():
        raise broken_exercises()[name]
    found = {exercise.name: exercise for exercise in exercises()}
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        raise ExerciseError(
            said("there is no exercise {name!r}", name=name)
            + (said("; did you mean {near}?", near=near[0]) if near else ""),
            "ladder exercise list",
        )
    return found[name]


def read_exercise(folder: Path, ladder: Ladder | None = None) -> Exercise:
    """Reads the exercise in ``folder``, on a rung of ``ladder``, by default the one that is there. Raises
    :class:`ExerciseError`.
    """
    ladder = discover() if ladder is None else ladder
    path = folder / "exercise.toml"
    table = read_table(path)
    rung = table.text("rung", "") or None
    if rung in ladder.aside:
        raise ExerciseError(f"{path}: there is no rung {rung}")
    if rung:
        rung = ladder.today(rung)
    main_file = "kernel.cu" if rung else "program.cu"
    exercise = Exercise(
        name=folder.name,
        rung=rung,
        number=table.take("number", int),
        title=table.text("title"),
        task=flowing(table.text("task")),
        hints=table.texts("hints"),
        afterword=flowing(table.text("afterword")),
        open_book=table.take("open_book", bool, False),
        is_last=table.take("is_last", bool, False),
        owner=table.text("owner", "thread"),
        gap=_gap(table.table("gap"), main_file),
        edits=tuple(
            Edit(one.text("file", main_file), one.text("find"), one.text("replace"))
            for one in table.tables("edits", [])
        ),
        cases=tuple(_case(one, rung, ladder) for one in table.tables("cases")) if rung else (),
        runs=() if rung else tuple(_run(one) for one in table.tables("runs")),
    )
    table.finish()
    if exercise.owner not in ("thread", "fragments"):
        raise ExerciseError(f"{path}: owner is thread or fragments, not {exercise.owner!r}")
    if not (exercise.cases or exercise.runs) or not exercise.hints:
        raise ExerciseError(
            f"{path}: there must be at least one of {'cases' if rung else 'runs'} and of hints"
        )
    return exercise


def flowing(text: str) -> str:
    """The text with each paragraph in one line, since whatever shows it wraps it."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def _gap(table: Table, main_file: str) -> Gap:
    first = table.text("first")
    gap = Gap(
        file=table.text("file", main_file),
        after=table.text("after", "") or None,
        first=first,
        last=table.text("last", first),
        goal=table.text("goal"),
        skeleton=table.text("skeleton"),
        solution=table.text("solution", "") or None,
    )
    table.finish()
    return gap


#: A case's keys that describe the problem, besides size, with their types and fields of the problem.
_FIELDS: dict[str, tuple[type, str]] = {
    "causal": (bool, "is_causal"),
    "kv_heads": (int, "kv_heads"),
    "dtype": (str, "dtype"),
    "inputs": (str, "inputs"),
    "scale": (float, "scale"),
    "queries": (list, "q_lens"),
    "keys": (list, "kv_lens"),
    "contexts": (list, "contexts"),
    "targets": (list, "targets"),
    "window": (list, "window"),
    "softcap": (float, "softcap"),
    "sinks": (bool, "sinks"),
    "e4m3": (bool, "e4m3"),
    "bias_heads": (int, "bias_heads"),
    "page_size": (int, "page_size"),
    "intervals": (bool, "intervals"),
    "lengths": (list, "lengths"),
    "splits": (int, "num_splits"),
    "keys_before": (int, "window"),  # of decoding, whose window has one side
    "strided": (bool, "strided"),
}


def _case(table: Table, rung: str, ladder: Ladder) -> Case:
    at_most = table.take("at_most", dict, {})
    try:
        operation = get_operation(ladder[rung].computes)
        problem = operation.parse(table.text("size"), **_fields(table, operation))
    except (InvalidProblem, StageError) as error:
        raise table.error(error.message) from error
    case = Case(
        problem,
        at_most,
        table.take("at_least", dict, {}),
        table.text("reason", "").strip(),
        _share(table.table("first_block", {})),
    )
    _require_counts(table, at_most, (*COUNTERS, BLOCK_BARRIERS))
    _require_counts(table, case.at_least, COUNTERS)
    table.finish()
    return case


def _share(table: Table) -> Share | None:
    """Block 0's share of the work; None for an empty table."""
    share = Share(table.take("multiprocessors", int, 0), table.text("computes", ""))
    table.finish()
    return share if share.multiprocessors else None


def _fields(table: Table, operation: Operation) -> dict[str, Any]:
    """A case's fields of the problem besides its size, by name."""
    known = {field.name for field in dataclasses.fields(operation.problem)}  # type: ignore[arg-type]
    fields: dict[str, Any] = {}
    for key, (kind, field) in _FIELDS.items():
        value = table.take(key, kind, None)
        if value is None:
            continue
        if field not in known:
            raise table.error(f"{operation.title} has no {key}")
        if kind is list and not all(type(number) is int for number in value):
            raise table.error(f"{key} = {value!r} is no list of whole numbers")
        fields[field] = tuple(value) if kind is list else value
    return fields


def _run(table: Table) -> Run:
    text = table.text("arguments")
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise table.error(f"arguments = {text!r}: {error}") from error
    run = Run(arguments, table.take("at_most", dict, {}), table.text("reason", "").strip())
    _require_counts(table, run.at_most, (*COUNTERS, GLOBAL_ATOMICS))
    table.finish()
    return run


def _require_counts(table: Table, limits: Mapping[str, int], known: Sequence[str]) -> None:
    unknown = [column for column in limits if column not in known]
    if unknown:
        raise table.error(f"a limit is on {unknown[0]}, which is no count of the table")
