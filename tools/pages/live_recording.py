"""Records what a live page needs of a rung: its compiled kernels, and each launch with its arguments.

The rung's own host code makes the launches, on the emulator: nothing describes them a second time. A word of
the arguments that is an address of a tensor, or of memory that the host code has allocated, is recorded as
that buffer and the distance from its beginning.
"""

from __future__ import annotations

import base64
import ctypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ladder import _emulator
from ladder.compile import Target, build
from ladder.operations import AnyProblem, Spread, Tensors, operation_of
from ladder.run import emulator
from ladder.run.backends import Lent, emulate, make_outputs
from ladder.run.emulator import Launch
from ladder.run.evaluation import reference_of
from ladder.stages import DEFAULT_ARCH, Stage

_WORD = 8
#: Buffers lie as far from a multiple of this as they did, so that accesses touch the same sectors.
_ALIGNMENT = 256
#: What programs write, as in the page and in torch.
_DTYPES = {"int": "i32", "float": "f32"}
_TENSORS = {"i32": torch.int32, "f32": torch.float32}


@dataclass(frozen=True)
class Buffer:
    """Memory of a problem. ``use`` is input, output, allocation, or contents: memory that a program has
    filled. ``data`` is what an input or such memory contains.
    """

    name: str
    data: bytes
    bytes: int
    distance: int
    use: str


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
    ``left`` is what a program's buffers contain at the end of its launch.
    """

    ptx: str = ""
    arch: str = ""
    buffers: list[Buffer] = field(default_factory=list)
    launches: list[RecordedLaunch] = field(default_factory=list)
    counted: Sequence[Launch] = ()
    findings: str = "[]"
    outputs: Tensors = field(default_factory=dict)
    left: list[bytes] = field(default_factory=list)


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


def record_program(call: Callable[[], int], *, check: bool = False) -> tuple[Run, int]:
    """Calls a program's main, and records its launches with what its memory contains at the first; returns
    also what main returns.
    """
    run = Run(arch=DEFAULT_ARCH)
    recorder = _Recorder(run)
    with emulator.session(run.arch, threads=1, check=check) as opened, recorder.attached():
        code = call()
        run.counted = opened.launches
    run.findings = opened.findings_json
    return run, code


class _Recorder:
    """Looks at each launch before it begins. Without ``lent`` memory and ``inputs``, all is a program's."""

    def __init__(
        self, run: Run, lent: Mapping[int, Lent] | None = None, inputs: Tensors | None = None
    ) -> None:
        self._run, self._lent, self._inputs = run, lent, inputs or {}
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
        if why == "end" and self._lent is None:
            sizes = zip(self._begins, self._run.buffers, strict=True)
            self._run.left = [ctypes.string_at(begin, one.bytes) for begin, one in sizes]
        if why != "launch":
            return
        stepper, run = self._stepper, self._run
        launch = stepper.launch()
        run.ptx = stepper.ptx()
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
            use, data = self._contents(begin, size, name, writable)
            self._begins.append(begin)
            self._run.buffers.append(Buffer(name, data, size, begin % _ALIGNMENT, use))
        return self._begins.index(begin)

    def _contents(self, begin: int, size: int, name: str, writable: bool) -> tuple[str, bytes]:
        """The buffer's use and its data."""
        if self._lent is None:
            return "contents", ctypes.string_at(begin, size)
        if begin not in self._lent:
            return "allocation", b""
        if writable:
            return "output", b""
        tensor = self._inputs[name]
        assert tensor is not None
        return "input", bytes_of(tensor)


# --- a rung with another line


def barrier_lines(stage: Stage) -> list[int]:
    """The lines of its kernel that are a barrier of the block."""
    lines = stage.kernel.read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if re.match(r"\s*__syncthreads\(\);", line)]


def with_line(text: str, number: int, line: str) -> str:
    """The text with another line of this number."""
    lines = text.splitlines()
    lines[number - 1] = line
    return "\n".join([*lines, ""])


# --- as JSON


def recorded(run: Run) -> dict[str, Any]:
    """Buffers and launches."""
    return {
        "buffers": [{**asdict(one), "data": base64_of(one.data)} for one in run.buffers],
        "launches": [{**asdict(one), "arguments": base64_of(one.arguments)} for one in run.launches],
    }


def references(problem: AnyProblem, run: Run, *, exact: bool = False) -> list[dict[str, Any]]:
    """Each output's number among the buffers, the reference, and the limits of its |error|, one for all
    elements or, if they are ``exact``, one for each. References are rounded to float32, but for exact ones of
    outputs in float32.
    """
    operation = operation_of(problem)
    expected = reference_of(problem, operation.make_inputs(problem))
    dtypes = {one.name: one.dtype for one in operation.outputs(problem)}
    numbers = {one.name: number for number, one in enumerate(run.buffers)}
    found = []
    for name, output in expected.outputs.items():
        limits = torch.as_tensor(expected.limits[name], dtype=torch.float64)
        is_exact = exact and dtypes[name] == "f32"
        found.append(
            {
                "output": name,
                "buffer": numbers[name],
                "dtype": dtypes[name],
                "format": "f64" if is_exact else "f32",
                "data": base64_of(bytes_of(output.double() if is_exact else output.float())),
                "limits": base64_of(bytes_of((limits if exact else limits.max()).reshape(-1))),
                **(_spread(expected.spreads[name]) if exact and name in expected.spreads else {}),
            }
        )
    return found


def references_of_program(run: Run, source: str) -> list[dict[str, Any]]:
    """What a right answer leaves in the buffers that it writes: floats within a thousandth of the largest."""
    [launch] = run.launches
    found = []
    for (kind, name), (_, number, _) in zip(_pointers(source), launch.pointers, strict=True):
        left = run.left[number]
        if run.buffers[number].data == left:
            continue
        dtype = _DTYPES[kind]
        values = torch.frombuffer(bytearray(left), dtype=_TENSORS[dtype])
        limit = 1e-3 * float(values.abs().max()) if dtype == "f32" else 0.0
        found.append(
            {
                "output": name,
                "buffer": number,
                "dtype": dtype,
                "format": dtype,
                "data": base64_of(left),
                "limits": base64_of(bytes_of(torch.tensor([limit], dtype=torch.float64))),
            }
        )
    return found


def _pointers(source: str) -> list[tuple[str, str]]:
    """The pointers among the parameters of the source's only kernel: what each points to, and its name."""
    [parameters] = re.findall(r"^__global__[^(]*\(([^)]*)\)", source, re.MULTILINE)
    return re.findall(r"(\w+) \*(\w+)", parameters)


def _spread(spread: Spread) -> dict[str, Any]:
    """How large all errors may be together."""
    deviations = base64_of(bytes_of(spread.deviations.float()))
    certain = base64_of(bytes_of(spread.certain))
    return {
        "spread": {
            "deviations": deviations,
            "mean_square": spread.mean_square,
            "certain": certain,
            "gain": spread.gain,
        }
    }


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()
