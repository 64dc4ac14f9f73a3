"""Runs a rung under the sanitizer to find its kernels' faults line by line, even if the result is correct."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.common.progress import steps
from ladder.compile import Remark, Target, build, remarks
from ladder.errors import ExecutionError, UnsupportedProblem
from ladder.operations import AnyProblem, Tensors, get_operation, memory, operation_of
from ladder.run.backends import Runner, Treatment, get_backend
from ladder.run.emulator import ORDER_OF_ADDITIONS, Finding, Party, merged, split_remarks
from ladder.run.evaluation import verdict
from ladder.run.evaluation.comparison import usual_problems
from ladder.run.evaluation.references import reference_of
from ladder.run.evaluation.reuse import MULTIPROCESSORS, reusing_problems
from ladder.stages import Stage, discover

if TYPE_CHECKING:
    from torch import Tensor

    from ladder.operations import Reference
    from ladder.run.backends import Execution


def check_stage(
    stage: Stage | str,
    problems: Sequence[AnyProblem] | None = None,
    *,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Builds a stage, runs it on the problems with the sanitizer on, and returns the findings.

    The default problems are the operation's, sizes that are multiples of tiles and sizes that are not, and
    those of :mod:`ladder.run.evaluation.reuse`, on which the rung uses each buffer several times. Of these,
    the last one, and every second one before it, runs with the last block first: of a kernel that takes its
    work items from a counter, the block that starts first computes most.

    A fault on several problems is one finding. A wrong result without a faulty access is a finding, too. So
    are a run that did not finish, undefined registers, which only ptxas sees, and additions of floats in no
    fixed order, unless stage.toml says ``deterministic = false``. Each run has its own process.

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
    accepted: list[_Try] = []
    extension = build(stage, target, stage.chosen_options(options or {}))
    given = [_Try(problem) for problem in problems or ()]
    tried = given or [*_default_tries(stage, extension, target)]
    for one in tried:
        try:
            accepted.append(replace(one, problem=stage.accept(one.problem)))
            memory.require(accepted[-1].problem)
        except UnsupportedProblem as error:
            refusals.append(error)
    if not accepted:
        raise refusals[0]
    findings = [*_undefined(extension)]
    with steps(f"Checking {stage.name}:", len(accepted), elsewhere=False) as progress:
        for one in accepted:
            with progress.step(str(one.problem)):
                try:
                    findings += _findings(stage, extension, target, one)
                except UnsupportedProblem as error:  # known only to its host code
                    refusals.append(error)
    if len(refusals) == len(tried):
        raise refusals[0]
    return Checked(*split_remarks(merged(findings)))


def is_faulty(stage: Stage | str) -> bool:
    """Whether :func:`check_stage` with its default problems has a finding, or the stage takes none of them.
    Ends at the first finding. Raises :class:`BuildError`.
    """
    stage = discover()[stage] if isinstance(stage, str) else stage
    target = get_backend("emulator").target(stage, None)
    extension = build(stage, target, stage.chosen_options({}))
    if any(_undefined(extension)):
        return True
    has_run = False
    for one in _default_tries(stage, extension, target):
        try:
            accepted = replace(one, problem=stage.accept(one.problem))
            memory.require(accepted.problem)
            findings = _findings(stage, extension, target, accepted)
        except UnsupportedProblem:
            continue
        has_run = True
        if split_remarks(findings)[0]:
            return True
    return not has_run


def stage_remarks(
    stage: Stage | str, *, arch: str | None = None, options: Mapping[str, str] | None = None
) -> tuple[Remark, ...]:
    """Builds a stage for the emulator and returns ptxas's remarks on it. Raises :class:`BuildError`."""
    stage = discover()[stage] if isinstance(stage, str) else stage
    target = get_backend("emulator").target(stage, arch)
    return remarks.read(build(stage, target, stage.chosen_options(options or {})).parent)


@dataclass(frozen=True)
class _Try:
    """A problem, and whether its last block runs first."""

    problem: AnyProblem
    backwards: bool = False


def _default_tries(stage: Stage, extension: Path, target: Target) -> Iterator[_Try]:
    checked = [*filter(stage.suits, get_operation(stage.computes).check_problems)]
    yield from map(_Try, checked or usual_problems(stage))
    with get_backend("emulator").runner(extension, target) as runner:
        found = reusing_problems(stage, runner)
    for place, problem in enumerate(found):
        yield _Try(problem, backwards=(len(found) - place) % 2 == 1)


def _undefined(extension: Path) -> Iterator[Finding]:
    """Of ptxas's remarks, those that say that the result is undefined."""
    for remark in remarks.read(extension.parent):
        if remark.is_undefined:
            lines = (remark.file, remark.line, remark.kernel_file, remark.kernel_line, remark.kernel_line)
            place = Party(None, None, (), *lines, opcode="", ptx_line=0)
            message = f"{remark.message} (ptxas, {remark.number})"
            yield Finding("undefined registers", message, "", 1, place, None, "")


def _findings(stage: Stage, extension: Path, target: Target, one: _Try) -> list[Finding]:
    """Those of one run, in a process of its own. Raises :class:`UnsupportedProblem`."""
    try:
        with get_backend("emulator").runner(extension, target) as runner:
            return _check(runner, one.problem, stage.deterministic, one.backwards)
    except ExecutionError as error:
        return [_failure(str(error), one.problem)]


def _failure(text: str, problem: AnyProblem) -> Finding:
    """Makes the finding for a run that did not finish or whose result is invalid."""
    return Finding("failure", f"{text}\n(on {problem})", "", 1, None, None, "")


def _check(runner: Runner, problem: AnyProblem, deterministic: bool, backwards: bool) -> list[Finding]:
    operation = operation_of(problem)
    with memory.guarded(problem):
        inputs = operation.make_inputs(problem)
        treatment = Treatment(check=True, backwards=backwards, multiprocessors=MULTIPROCESSORS)
        execution = runner.run(problem, inputs, treatment=treatment)
        failure, tensors = execution.failure, {**inputs, **execution.outputs}
        findings, remarks = split_remarks(_with_element(one, tensors) for one in execution.findings)
        if deterministic:
            unordered = [remark for remark in remarks if remark.kind == ORDER_OF_ADDITIONS]
            findings += [replace(remark, kind="unordered additions") for remark in unordered]
        remarks = [remark for remark in remarks if remark.kind != ORDER_OF_ADDITIONS]
        if failure is None and not findings:
            verdict.require_kernels(runner, problem, inputs, execution)
            wrong = list(_wrong_results(execution, reference_of(problem, inputs), problem))
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
    wrong = expected.wrong(execution.outputs)
    for name, worst in expected.errors(execution.outputs).items():
        if name in wrong:
            bad = wrong[name]
            message = (
                f"{int(bad.sum()):,} of {bad.numel():,} elements of {name} are off by too much, this one by "
                f"{worst.error:.3g} where {worst.bound:.3g} is allowed, on {problem}"
            )
            place = _element(name, bad, worst.place)
            yield Finding("wrong result", message, "", int(bad.sum()), None, None, place)
        elif worst.together:
            yield Finding("wrong result", f"{worst.together}, on {problem}", "", 1, None, None, name)
