"""The options that describe a problem of any operation, and how they are read."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ladder.errors import InvalidProblem, LadderError
from ladder.operations import DEFAULT_OPERATION, OPERATIONS, AnyProblem, Operation, get_operation

_COMMON = ("problem", "dtype", "inputs")


class _Recorder:
    """Stands in for an argparse group: forwards each option once and records its name."""

    def __init__(self, group: Any, known: set[str]) -> None:
        self._group = group
        self._known = known
        self.names: list[str] = []

    def add_argument(self, flag: str, **choices: Any) -> None:
        name = flag.removeprefix("--").replace("-", "_")
        self.names.append(name)
        if name not in self._known:
            self._known.add(name)
            self._group.add_argument(flag, **choices)


def _add_own(group: Any) -> dict[str, list[str]]:
    """Adds the options specific to operations. Returns their names by operation."""
    known: set[str] = set()
    found = {}
    for name in OPERATIONS:
        recorder = _Recorder(group, known)
        get_operation(name).add_options(recorder)
        found[name] = recorder.names
    return found


def _letters() -> list[str]:
    """The sizes of all operations that have one letter: B, H, N, M, d, ..."""
    forms = [get_operation(name).size_text[0].split(",") for name in OPERATIONS]
    return list(dict.fromkeys(letter for form in forms for letter in form if len(letter) == 1))


def add_problem_options(parser: argparse.ArgumentParser) -> None:
    """Adds ``--problem`` and the single options of a problem."""
    group = parser.add_argument_group("problem")
    sizes = "; ".join(f"{get_operation(name).size_text[0]} of {name}" for name in OPERATIONS)
    group.add_argument("--problem", metavar="SIZES", help=f"its sizes: {sizes}; --N 512 sets one")
    for letter in _letters():
        group.add_argument(f"--{letter}", dest=f"size_{letter}", help=argparse.SUPPRESS)
    _add_own(group)
    group.add_argument("--dtype", help="f32, f16 or bf16 (the first that a stage takes)")
    group.add_argument("--inputs", help="normal, or another kind that the operation knows: large, ...")


def operation_of_stages(names: Sequence[str]) -> Operation:
    """The operation that these stages compute; attention if there are none.

    Raises :class:`StageError` for an unknown stage, :class:`LadderError` if their operations differ.
    """
    from ladder.stages import discover

    ladder = discover()
    found = dict.fromkeys(ladder[name].computes for name in names if name not in ladder.broken)
    if len(found) > 1:
        raise LadderError(f"the stages compute different things: {', '.join(found)}", "Name those of one.")
    return get_operation(next(iter(found), DEFAULT_OPERATION))


def add_operation_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--operation``, which selects all stages that compute it."""
    parser.add_argument(
        "--operation",
        choices=OPERATIONS,
        metavar="NAME",
        help=f"all stages that compute this: {', '.join(OPERATIONS)} ({DEFAULT_OPERATION})",
    )


def by_operation(options: argparse.Namespace) -> dict[Operation, list[str]]:
    """The named stages by operation; an empty list stands for all stages of an operation.

    Raises :class:`StageError` for an unknown stage.
    """
    from ladder.stages import discover

    ladder = discover()
    found: dict[Operation, list[str]] = {}
    for name in options.stages:
        computes = DEFAULT_OPERATION if name in ladder.broken else ladder[name].computes
        found.setdefault(get_operation(computes), []).append(name)
    return found or {get_operation(options.operation or DEFAULT_OPERATION): []}


def is_problem_given(options: argparse.Namespace) -> bool:
    """Whether any option describes the problem."""
    names = {name for own in _add_own(_Nowhere()).values() for name in own}
    letters = [f"size_{letter}" for letter in _letters()]
    return any(getattr(options, name) is not None for name in (*_COMMON, *letters, *names))


class _Nowhere:
    def add_argument(self, *_: Any, **__: Any) -> None:
        """Ignores the arguments: only the names are wanted."""


def problem_of(options: argparse.Namespace, operation: Operation, sizes: AnyProblem) -> AnyProblem:
    """The problem that the options describe; sizes not given come from ``sizes``.

    Raises :class:`InvalidProblem`, also for an option of another operation.
    """
    from ladder.operations import parse_dtype

    own = _add_own(_Nowhere())
    others = {name for names in own.values() for name in names} - set(own[operation.name])
    for name in sorted(others):
        if getattr(options, name) is not None:
            raise InvalidProblem(f"{operation.name} has no --{name.replace('_', '-')}")
    fields = operation.fields_of(options)
    if options.dtype is not None:
        fields["dtype"] = parse_dtype(options.dtype)
    if options.inputs is not None:
        fields["inputs"] = options.inputs
    size = options.problem if options.problem is not None else operation.size_of(sizes)
    return operation.parse(_with_letters(size, options, operation), **fields)


def _with_letters(size: str, options: argparse.Namespace, operation: Operation) -> str:
    """The sizes, of which options such as ``--N`` replace some. Raises :class:`InvalidProblem`."""
    form, words = operation.size_text[0].split(","), size.split(",")
    for letter in _letters():
        value = getattr(options, f"size_{letter}")
        if value is None:
            continue
        if letter not in form:
            hint = f"Its sizes are --problem {operation.size_text[0]}."
            raise InvalidProblem(f"{operation.name} has no size {letter}", hint)
        if len(words) == len(form):
            words[form.index(letter)] = value
    return ",".join(words)
