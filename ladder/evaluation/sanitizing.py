"""Runs a rung under the sanitizer to find its kernels' faults line by line, even if the result is correct."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ladder.backends import Runner, Treatment, get_backend
from ladder.build import Remark, build, remarks
from ladder.common.progress import steps
from ladder.emulator import Finding, merged, split_remarks
from ladder.errors import ExecutionError, UnsupportedProblem
from ladder.evaluation import verdict
from ladder.operations import AnyProblem, Tensors, get_operation, memory, operation_of
from ladder.stages import Stage, discover

if TYPE_CHECKING:
    from torch import Tensor

    from ladder.backends import Execution
    from ladder.operations import Reference


def check_stage(
    stage: Stage | str,
    problems: Sequence[AnyProblem] | None = None,
    *,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Builds a stage, runs it on the problems with the sanitizer on, and returns the findings.

    The default problems are the operation's: sizes that are multiples of tiles, and sizes that are not.

    A fault on several problems is one finding. A wrong result without a faulty access is a finding, too, and
    so is a run that did not finish. Each run has its own process.

    Raises :class:`UnsupportedProblem` if the stage takes none of the problems, and :class:`BuildError`.
    """
    return checked_stage(stage, problems, arch=arch, options=options).findings


@dataclass(frozen=True)
class Checked:
    """What the sanitizer says of a stage: faults, and remarks, which are none."""

    findings: list[Finding]
    remarks: list[Finding]


def checked_stage(
    stage: Stage | str,
    problems: Sequence[AnyProblem] | None = None,
    *,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Checked:
    """Like :func:`check_stage`, with the remarks."""
    stage = discover()[stage] if isinstance(stage, str) else stage
    backend = get_backend("emulator")
    target = backend.target(stage, arch)
    refusals: list[UnsupportedProblem] = []
    accepted: list[AnyProblem] = []
    tried = problems or get_operation(stage.computes).check_problems
    for problem in tried:
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
                try:
                    with backend.runner(extension, target) as runner:
                        findings += _check(runner, problem)
                except UnsupportedProblem as error:  # known only to its host code
                    refusals.append(error)
                except ExecutionError as error:
                    findings.append(_failure(str(error), problem))
    if len(refusals) == len(tried):
        raise refusals[0]
    return Checked(*split_remarks(merged(findings)))


def stage_remarks(
    stage: Stage | str, *, arch: str | None = None, options: Mapping[str, str] | None = None
) -> tuple[Remark, ...]:
    """Builds a stage for the emulator and returns ptxas's remarks on it. Raises :class:`BuildError`."""
    stage = discover()[stage] if isinstance(stage, str) else stage
    target = get_backend("emulator").target(stage, arch)
    return remarks.read(build(stage, target, stage.chosen_options(options or {})).parent)


def _failure(text: str, problem: AnyProblem) -> Finding:
    """Makes the finding for a run that did not finish or whose result is invalid."""
    return Finding("failure", f"{text}\n(on {problem})", "", 1, None, None, "")


def _check(runner: Runner, problem: AnyProblem) -> list[Finding]:
    operation = operation_of(problem)
    with memory.guarded(problem):
        inputs = operation.make_inputs(problem)
        execution = runner.run(problem, inputs, treatment=Treatment(check=True))
        failure, tensors = execution.failure, {**inputs, **execution.outputs}
        findings, remarks = split_remarks(_with_element(one, tensors) for one in execution.findings)
        if failure is None and not findings:
            verdict.require_kernels(runner, problem, inputs, execution)
            wrong = list(_wrong_results(execution, operation.reference(problem, inputs), problem))
            return [*wrong, *remarks]
    if failure:
        # Outputs that the run did not reach are not findings, and the fault that ended it may already be one.
        findings = [finding for finding in findings if finding.kind != "unwritten output"]
        if not any(finding.message in failure.message for finding in findings):
            findings.append(_failure(str(failure), problem))
    return [*findings, *remarks]


def _with_element(finding: Finding, tensors: Tensors) -> Finding:
    tensor = tensors.get(finding.object)
    if tensor is None:
        return finding
    number = finding.object_offset // tensor.element_size()
    return replace(finding, element=_element(finding.object, tensor, number))


def _element(name: str, tensor: Tensor, number: int) -> str:
    """Names the element at this offset in memory, such as ``o[0, 1, 17, 3]``."""
    index = []
    for size in reversed(tensor.shape):
        number, place = divmod(number, size)
        index.append(place)
    return f"{name}[{', '.join(map(str, reversed(index)))}]"


def _wrong_results(execution: Execution, expected: Reference, problem: AnyProblem) -> Iterator[Finding]:
    for name, bad in expected.wrong(execution.outputs).items():
        worst = expected.deviation(name, execution.outputs[name])
        yield Finding(
            kind="wrong result",
            message=f"{int(bad.sum()):,} of {bad.numel():,} elements of {name} are off by too much, this one "
            f"by {worst.error:.3g} where {worst.bound:.3g} is allowed, on {problem}",
            kernel="",
            count=int(bad.sum()),
            who=None,
            other=None,
            element=_element(name, bad, worst.place),
        )
