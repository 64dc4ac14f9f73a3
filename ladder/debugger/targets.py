"""What a session debugs: a rung on a problem, or a program, compiled for debugging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ladder.common.progress import steps
from ladder.compile import DebugTarget, build, build_program
from ladder.debugger.session import Session
from ladder.operations import AnyProblem, operation_of
from ladder.run.backends import Arena, make_outputs
from ladder.stages import DEFAULT_ARCH, Stage, require_arch


@dataclass(frozen=True)
class How:
    """How to build and run it: ``lines_only`` takes the optimised build, which has lines but no variables;
    ``check`` runs it under the sanitizer.
    """

    arch: str | None = None
    lines_only: bool = False
    check: bool = False

    def session(self, arch: str) -> dict[str, Any]:
        return {"arch": arch, "check": self.check, "threads": 1}


def debug_stage(
    stage: Stage,
    problem: AnyProblem,
    how: How,
    *,
    options: Mapping[str, str] | None = None,
    output: IO[bytes] | int | None = None,
) -> Session:
    """A session that debugs a rung, compiled for this problem alone. Raises :class:`UnsupportedProblem`,
    :class:`BuildError`, :class:`ExecutionError`.
    """
    if how.arch is not None:
        require_arch(how.arch)
    problem = stage.accept(problem)
    stage = stage.narrowed([problem])
    target = DebugTarget(stage.arch(how.arch), how.lines_only)
    with steps("Building", 1) as progress, progress.step(stage.name):
        extension = build(stage, target, stage.chosen_options(options or {}))
    operation = operation_of(problem)
    inputs, outputs = operation.make_inputs(problem), make_outputs(problem, "cpu")
    tensors = {**inputs, **outputs}
    with Arena.of(tensors) as arena:
        lent = [(name, place.begin, place.bytes, name in outputs) for name, place in arena.places.items()]
        lent += [(name, -1, 0, False) for name, tensor in tensors.items() if tensor is None]
        data = {
            "extension": str(extension),
            "lent": lent,
            "arguments": operation.arguments(problem, tensors),
            "arena": arena.descriptor,
            "session": how.session(target.arch),
        }
        return Session(data, descriptors=[arena.descriptor], output=output)


def debug_program(
    sources: Sequence[Path],
    words: Sequence[str],
    how: How,
    *,
    flags: Sequence[str] = (),
    output: IO[bytes] | int | None = None,
) -> Session:
    """A session that debugs a program of ``.cu`` files, called with ``words``."""
    arch = how.arch or DEFAULT_ARCH
    require_arch(arch)
    with steps("Building", 1) as progress, progress.step(sources[0].name):
        program = build_program(sources, DebugTarget(arch, how.lines_only), flags)
    return Session(
        {"program": str(program), "words": list(words), "session": how.session(arch)}, output=output
    )
