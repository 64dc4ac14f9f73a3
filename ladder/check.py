"""A rung under the sanitizer: what its kernels do wrong, by line, although the result may be right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ladder import memory
from ladder.backends.emulator import EmulatorBackend
from ladder.build import Target, build
from ladder.errors import UnsupportedProblem
from ladder.findings import Finding, merged
from ladder.matrix import DEFAULT_PROBLEM
from ladder.problem import Problem
from ladder.progress import steps
from ladder.stages import Stage, discover

if TYPE_CHECKING:
    from torch import Tensor

    from ladder.backends import Execution
    from ladder.reference import Reference

#: What a rung is checked on unless told otherwise: sizes that tiles fit, and ones that they do not.
PROBLEMS = (DEFAULT_PROBLEM, Problem(1, 2, 100, 77, 64, kv_heads=1, is_causal=True))


def check_stage(
    stage: Stage | str,
    problems: Sequence[Problem] = PROBLEMS,
    *,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Builds a stage, runs it on the problems with the sanitizer on and returns what it found.

    A fault that happens on several problems is one finding. Where no access is at fault and the result is
    wrong all the same, that is a finding of its own.

    Raises :class:`UnsupportedProblem` if the stage takes none of the problems, :class:`BuildError`, and
    :class:`ExecutionError` if its host code fails.
    """
    stage = discover()[stage] if isinstance(stage, str) else stage
    backend = EmulatorBackend()
    target = backend.target(stage, arch)
    refusals: list[UnsupportedProblem] = []
    accepted: list[Problem] = []
    for problem in problems:
        try:
            accepted.append(stage.accept(problem))
            memory.require(accepted[-1])
        except UnsupportedProblem as error:
            refusals.append(error)
    if not accepted:
        raise refusals[0]
    findings: list[Finding] = []
    with steps(f"Checking {stage.name}:", len(accepted), elsewhere=False) as progress:
        for problem in accepted:
            with progress.step(str(problem)):
                extension = build(stage, target, stage.chosen_options(options or {}))
                findings += _check(backend, extension, target, problem)
    return merged(findings)


def _check(backend: EmulatorBackend, extension: Path, target: Target, problem: Problem) -> list[Finding]:
    from ladder.inputs import make_inputs
    from ladder.reference import reference

    with memory.guarded(problem):
        q, k, v = make_inputs(problem, backend.device)
        execution, findings = backend.check(extension, target, problem, q, k, v)
        if not findings:
            expected = reference(q, k, v, is_causal=problem.is_causal, scale=problem.softmax_scale)
            return list(_wrong_results(execution, expected, problem))
    tensors = {"q": q, "k": k, "v": v, "o": execution.o, "lse": execution.lse}
    return [_with_element(finding, tensors) for finding in findings]


def _with_element(finding: Finding, tensors: Mapping[str, Tensor]) -> Finding:
    tensor = tensors.get(finding.object)
    if tensor is None:
        return finding
    number = finding.object_offset // tensor.element_size()
    return replace(finding, element=_element(finding.object, tensor, number))


def _element(name: str, tensor: Tensor, number: int) -> str:
    """``o[0, 1, 17, 3]`` of the element with this number in memory."""
    index = []
    for size in reversed(tensor.shape):
        number, place = divmod(number, size)
        index.append(place)
    return f"{name}[{', '.join(map(str, reversed(index)))}]"


def _wrong_results(execution: Execution, expected: Reference, problem: Problem) -> Iterator[Finding]:
    for name, actual, right, bound in (
        ("o", execution.o, expected.o, expected.error_bound),
        ("lse", execution.lse, expected.lse, expected.lse_bound),
    ):
        difference = (actual.double() - right).abs().nan_to_num(nan=math.inf)
        if float(difference.max()) <= bound:
            continue
        wrong = int((difference > bound).sum())
        element = _element(name, actual, int(difference.argmax()))
        yield Finding(
            kind="wrong result",
            message=f"{wrong:,} of {actual.numel():,} elements of {name} are off by more than {bound:.3g}, "
            f"this one by {float(difference.max()):.3g}, on {problem}",
            kernel="",
            count=wrong,
            who=None,
            other=None,
            element=element,
        )
