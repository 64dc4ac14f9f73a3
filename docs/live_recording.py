"""Records what a live page needs of a rung: its compiled kernels, and each launch with its arguments.

The rung's own host code makes the launches, on the emulator: nothing describes them a second time. A word of
the arguments that is an address of a tensor, or of memory that the host code has allocated, is recorded as
that buffer and the distance from its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ladder import _emulator
from ladder.backends import Lent, emulate, make_outputs
from ladder.build import Target, build
from ladder.debugger import DebugInfo, Type, Variable, first_instructions
from ladder.emulator import Launch
from ladder.lessons import changed_copy
from ladder.operations import AnyProblem, Tensors, operation_of
from ladder.stages import Stage, read_stage

_WORD = 8
#: Buffers lie as far from a multiple of this as they did, so that accesses touch the same sectors.
_ALIGNMENT = 256
_DEPOT = "__local_depot"


@dataclass(frozen=True)
class Buffer:
    """Memory of a problem. ``use`` is input, output or allocation; ``data`` is an input's contents."""

    name: str
    bytes: int
    distance: int
    use: str
    data: bytes = b""


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch. ``pointers`` are (offset in the arguments, number of the buffer, distance from its first
    byte).
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_smem_bytes: int
    arguments: bytes
    pointers: tuple[tuple[int, int, int], ...]


@dataclass
class Run:
    """A problem as the rung's host code launched it. ``launches`` can be repeated with ``buffers``;
    ``counted`` has the counts of this run, and ``findings`` what the sanitizer has found, if it was on.
    """

    ptx: str = ""
    arch: str = ""
    buffers: list[Buffer] = field(default_factory=list)
    launches: list[RecordedLaunch] = field(default_factory=list)
    counted: Sequence[Launch] = ()
    findings: str = "[]"
    outputs: Tensors = field(default_factory=dict)
    #: By kernel: its instructions as the stepper has them.
    instructions: dict[str, Sequence[Any]] = field(default_factory=dict)


def record_run(
    stage: Stage, target: Target, problem: AnyProblem, *, check: bool = False, may_fail: bool = False
) -> Run:
    """Runs the rung on the problem and records it. Raises :class:`LadderError`; ``may_fail``: not if the
    kernel fails.
    """
    extension = build(stage, target, stage.chosen_options({}))
    operation = operation_of(problem)
    inputs, outputs = operation.make_inputs(problem), make_outputs(problem, "cpu")
    tensors = {**inputs, **outputs}
    run = Run(arch=target.arch, outputs=outputs)
    lent = []
    for name, tensor in tensors.items():
        begin, size = (tensor.data_ptr(), tensor.nbytes) if tensor is not None else (0, 0)
        lent.append(Lent(name, begin, size, name in outputs))
    recorder = _Recorder(run, {one.begin: one for one in lent if one.bytes}, inputs)
    session = {"arch": target.arch, "threads": 1, "check": check}
    with recorder.attached():
        emulation = emulate(extension, lent, operation.arguments(problem, tensors), session)
    if emulation.failure and not may_fail:
        raise emulation.failure
    run.counted, run.findings = emulation.launches, emulation.findings
    return run


class _Recorder:
    """Looks at each launch before it begins."""

    def __init__(self, run: Run, lent: Mapping[int, Lent], inputs: Tensors) -> None:
        self._run, self._lent, self._inputs = run, lent, inputs
        self._begins: list[int] = []  # of the run's buffers
        self._stepper = _emulator.Stepper(self._stopped)

    @contextmanager
    def attached(self) -> Iterator[None]:
        self._stepper.attach()
        try:
            yield
        finally:
            self._stepper.detach()

    def _stopped(self, why: str) -> None:
        if why != "launch":
            return
        stepper, run = self._stepper, self._run
        launch = stepper.launch()
        run.ptx = stepper.ptx()
        run.instructions[launch["mangled"]] = stepper.instructions()
        arguments = stepper.arguments()
        ranges = stepper.memory()
        pointers = []
        for at in range(0, len(arguments) - _WORD + 1, _WORD):
            word = int.from_bytes(arguments[at : at + _WORD], "little")
            for begin, end, name, writable in ranges:
                if begin <= word < end:
                    pointers.append((at, self._buffer(begin, end - begin, name, writable), word - begin))
        run.launches.append(
            RecordedLaunch(
                launch["mangled"], launch["grid"], launch["block"], launch["cluster"],
                stepper.dynamic_shared_bytes(), arguments, tuple(pointers),
            )
        )  # fmt: skip

    def _buffer(self, begin: int, size: int, name: str, writable: bool) -> int:
        """The number of the buffer that begins here."""
        if begin not in self._begins:
            own = self._lent.get(begin)
            use = "allocation" if own is None else "output" if writable else "input"
            tensor = self._inputs.get(name) if use == "input" else None
            data = tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor is not None else b""
            self._begins.append(begin)
            self._run.buffers.append(Buffer(name, size, begin % _ALIGNMENT, use, data))
        return self._begins.index(begin)


# --- a rung with another line


def barrier_lines(stage: Stage) -> list[int]:
    """The lines of its kernel that are a barrier of the block."""
    lines = stage.kernel.read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if re.match(r"\s*__syncthreads\(\);", line)]


def with_line(stage: Stage, number: int, text: str) -> Stage:
    """A copy of the rung in whose kernel the line with this number is the text."""
    lines = stage.kernel.read_text(encoding="utf-8").splitlines()
    lines[number - 1] = text
    changed = read_stage(changed_copy(stage, "\n".join([*lines, ""]), "changed"))
    return replace(changed, options={**changed.options, **stage.options})


# --- stepping


def debugging_tables(ptx: str, rows: Sequence[Any]) -> dict[str, Any]:
    """Where each instruction of a kernel is in the source, and where its variables are then, as JSON.

    ``rows`` are the stepper's instructions. ``places`` has [file, line, function, scope] by instruction;
    ``scopes`` has lists of variables [name, type, kind of place, symbol, offset]; ``starts`` has the
    instructions of a breakpoint on a line of the kernel's own file.
    """
    info = DebugInfo(ptx)
    files: list[str] = []
    scopes: list[list[Any]] = []
    places = []
    for function, ptx_line, _, positions in rows:
        file, line = positions[0][:2] if positions else ("", 0)
        if file not in files:
            files.append(file)
        scope = [
            *filter(None, (_place(one, ptx_line) for one in reversed(info.variables(function, ptx_line))))
        ]
        if scope not in scopes:
            scopes.append(scope)
        places.append([files.index(file), line, info.function_name(function), scopes.index(scope)])
    own = rows[0][3][-1][0]
    return {
        "files": [Path(file).name for file in files],
        "places": places,
        "scopes": scopes,
        "starts": first_instructions(rows).get(own, {}),
    }


def _place(variable: Variable, ptx_line: int) -> list[Any] | None:
    """A variable that the page can show; None for others."""
    kind = _kind(variable.type)
    place = variable.place_at(ptx_line)
    if kind is None or place is None or not variable.name.isidentifier():
        return None
    if place.constant is not None:
        return [variable.name, kind, "constant", "", place.constant]
    if place.register:
        return [variable.name, kind, "register", place.register, 0]
    if place.symbol:
        space = "local" if place.symbol.startswith(_DEPOT) else "parameter"
        return [variable.name, kind, space, place.symbol, place.offset]
    return None


#: DWARF's encodings of base types.
_ENCODINGS = {0x02: "b", 0x04: "f", 0x05: "i", 0x06: "i", 0x07: "u", 0x08: "u"}


def _kind(kind: Type) -> str | None:
    """A scalar's type in short, such as f4, i8 or p8; None for other types."""
    if kind.kind == "pointer":
        return "p8"
    if kind.kind == "base" and kind.encoding in _ENCODINGS:
        return f"{_ENCODINGS[kind.encoding]}{kind.bytes}"
    return None
