"""Runs stages on a problem, checks them against float64 and makes the table.

torch and pandas take seconds to load, so they are imported where they are used: cached rows need neither.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.common import cache
from ladder.common.progress import Steps, steps
from ladder.compile import Target, build, build_all, emulator_library
from ladder.errors import CacheError, InvalidProblem, LadderError, StageError, UnsupportedProblem
from ladder.operations import (
    DEFAULT_OPERATION,
    AnyProblem,
    Deviation,
    Operation,
    Reference,
    get_operation,
    memory,
    operation_of,
)
from ladder.run.backends import Backend, Execution, Runner, get_backend
from ladder.run.evaluation import verdict
from ladder.run.evaluation.references import reference_of
from ladder.run.evaluation.table import Row, columns, fill_row, make_row, to_frame
from ladder.stages import OptionValue, Stage, discover

if TYPE_CHECKING:
    import pandas as pd

    from ladder.run.backends import Timing


#: The subpackages that a row depends on, besides the build.
_ROW_FOLDERS = ("operations", "run/emulator", "run/backends", "run/evaluation")


@dataclass(frozen=True)
class Evaluation:
    """One stage's run on one problem, checked. If the run failed, it has nothing but its problem, its row and
    the ``failure``.
    """

    problem: AnyProblem
    row: Row
    execution: Execution = field(default_factory=lambda: Execution({}))
    reference: Reference = field(default_factory=lambda: Reference({}, {}))
    errors: Mapping[str, Deviation] = field(default_factory=dict)
    failure: str = ""

    @property
    def passed(self) -> bool:
        return bool(self.row["passed"])

    @property
    def text(self) -> str:
        """Why it has not passed: the failure, or the error of each output that is nearest to its bound; "" if
        it has.
        """
        if self.passed or self.failure:
            return self.failure
        errors = [
            f"|{name} - ref| = {found.error:.3g}, bound {found.bound:.3g}"
            for name, found in self.errors.items()
        ]
        together = [f"{name}: {found.together}" for name, found in self.errors.items() if found.together]
        return f"{self.row['stage']}: {'; '.join([*errors, *together])}"


@dataclass
class Comparison:
    """The rows of a comparison of stages of one operation, and why other stages are missing."""

    operation: Operation
    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, UnsupportedProblem] = field(default_factory=dict)
    failed: dict[str, LadderError] = field(default_factory=dict)
    #: By stage: the errors of its wrong outputs.
    reasons: dict[str, str] = field(default_factory=dict)
    cached: int = 0
    #: By stage; only on a GPU.
    timings: dict[str, Timing] = field(default_factory=dict)
    #: TFLOP/s of torch's matmul and attention backends on the same GPU, by the dtype of their inputs.
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every stage that takes the problem was built, ran and gave a correct result."""
        return not self.failed and bool(self.rows) and all(row["passed"] for row in self.rows)


@dataclass(frozen=True)
class _Job:
    stage: Stage
    problem: AnyProblem
    target: Target
    options: Mapping[str, OptionValue]


def evaluate(
    stage: Stage | str,
    problem: AnyProblem,
    *,
    backend: str = "auto",
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    thoroughly: bool = False,
) -> Evaluation:
    """Builds one stage, runs it on the problem in a process of its own and checks it, without using cached
    rows.

    With ``thoroughly``, a backend that can runs it once more in another order, see
    :mod:`ladder.run.evaluation.verdict`.

    Raises :class:`InvalidProblem` if the problem does not fit into memory, :class:`UnsupportedProblem`,
    :class:`BuildError`, :class:`ExecutionError`.

    >>> found = ladder.evaluate("v3", ladder.Problem(1, 1, 64, 64, 64))
    >>> found.passed, found.row["conflicts"]
    (True, 0)
    """
    chosen = get_backend(backend)
    job = _job(discover()[stage] if isinstance(stage, str) else stage, problem, chosen, arch, options or {})
    with steps("Running", 1, elsewhere=False) as progress, progress.step(job.stage.name):
        extension = build(job.stage, job.target, job.options, only=job.problem)
        with chosen.runner(extension, job.target) as runner:
            return _judge(job, chosen, runner, thoroughly=thoroughly, timed=True, details=True)


def evaluate_all(
    stage: Stage,
    problems: Sequence[AnyProblem],
    *,
    backend: str = "auto",
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    thoroughly: bool = False,
) -> Iterator[Evaluation]:
    """Yields an evaluation of each problem as soon as it is known; the runs share a process, and have neither
    timing nor counts by line.

    Raises like :func:`evaluate` before anything has run; later errors are the failures of evaluations.
    """
    chosen = get_backend(backend)
    jobs = [_job(stage, problem, chosen, arch, options or {}) for problem in problems]
    extension = build(stage, jobs[0].target, jobs[0].options)
    with chosen.runner(extension, jobs[0].target) as runner:
        for job in jobs:
            try:
                yield _judge(job, chosen, runner, thoroughly=thoroughly)
            except LadderError as error:
                row = _empty_row(job, chosen)
                yield Evaluation(job.problem, row, failure=f"{type(error).__name__}: {error}")


def compare(
    problem: AnyProblem | None = None,
    stages: Sequence[str] | None = None,
    *,
    backend: str = "auto",
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> pd.DataFrame:
    """Runs ``stages`` (default: all) on ``problem`` and returns the table, one row per stage.

    Stages that do not take the problem are left out; one that does not build or run has a row with ``passed``
    False and its counts empty. The emulator's results are cached, since they are reproducible; ``fresh``
    computes them again.

    Raises :class:`LadderError` if no stage takes the problem.

    >>> table = ladder.compare(ladder.Problem(1, 1, 64, 64, 64), ["v2", "v3"])
    >>> table.passed.tolist(), (table.conflicts > 0).tolist()
    ([True, True], [True, False])
    """
    result = run_comparison(problem, stages, backend=backend, arch=arch, options=options, fresh=fresh)
    return to_frame(result.rows, result.operation)


def run_comparison(
    problem: AnyProblem | None = None,
    stages: Sequence[str] | None = None,
    *,
    backend: str = "auto",
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Comparison:
    """Like :func:`compare`, but also returns the reasons for what is missing."""
    chosen = get_backend(backend)
    ladder = discover()
    operation = _operation(problem, [ladder[name] for name in stages or () if name not in ladder.broken])
    everything = [*(stage.name for stage in ladder.computing(operation.name)), *ladder.broken]
    problem = chosen.default_problem(operation) if problem is None else problem
    result = Comparison(operation)
    jobs: dict[str, _Job] = {}
    for name in everything if stages is None else [ladder.today(name) for name in stages]:
        try:
            jobs[name] = _job(ladder[name], problem, chosen, arch, options or {})
        except UnsupportedProblem as error:
            result.skipped[name] = error
        except StageError as error:
            if name not in ladder.broken:
                raise
            result.failed[name] = error
    if jobs:
        _run_jobs(jobs, chosen, result, fresh)
    if not result.rows and not result.failed:
        raise UnsupportedProblem(
            "no stage takes this problem:\n" + "\n".join(error.message for error in result.skipped.values())
        )
    return result


def default_problem(stage: str) -> AnyProblem:
    """The emulator's default problem for a stage: the first of :func:`usual_problems`.

    Raises :class:`StageError`.
    """
    return usual_problems(discover()[stage])[0]


def usual_problems(stage: Stage) -> list[AnyProblem]:
    """The operation's default problem and those of ``ladder check`` that the stage takes, or else the largest
    of the matrix that it takes. The default problem if it takes none.
    """
    operation = get_operation(stage.computes)
    found = [*filter(stage.suits, (operation.default_problem, *operation.check_problems))]
    if not found:
        matrix = filter(stage.suits, operation.matrix(stage.dtypes, stage.head_dims))
        found = sorted(matrix, key=lambda problem: problem.flops)[-1:]
    return list(dict.fromkeys(found)) or [operation.default_problem]


def _operation(problem: AnyProblem | None, stages: Sequence[Stage]) -> Operation:
    """The operation to compare: the problem's, or else that of the first named stage."""
    if problem is not None:
        return operation_of(problem)
    return get_operation(stages[0].computes if stages else DEFAULT_OPERATION)


def _job(
    stage: Stage, problem: AnyProblem, backend: Backend, arch: str | None, options: Mapping[str, str]
) -> _Job:
    job = _Job(stage, stage.accept(problem), backend.target(stage, arch), stage.chosen_options(options))
    memory.require(job.problem)
    return job


def _run_jobs(jobs: Mapping[str, _Job], backend: Backend, result: Comparison, fresh: bool) -> None:
    """Fills the result with each job's row, from the cache or from a run."""
    extensions = build_all(
        [job.stage for job in jobs.values()],
        {name: job.target for name, job in jobs.items()},
        {name: job.options for name, job in jobs.items()},
        only={name: job.problem for name, job in jobs.items()},
    )
    rows = {} if fresh or not backend.is_exact else _kept_rows(jobs, extensions, result.operation)
    result.cached = len(rows)
    missing = {name: job for name, job in jobs.items() if name not in rows}
    with steps("Running", len(missing)) as progress:
        for name, job in missing.items():
            try:
                rows[name] = _run_job(job, backend, extensions[name], progress, result)
            except UnsupportedProblem as error:  # known only to its host code
                result.skipped[name] = error
            except InvalidProblem:
                raise
            except LadderError as error:
                result.failed[name] = error
                rows[name] = _empty_row(job, backend)
    result.rows += [rows[name] for name in jobs if name in rows]
    if result.timings:
        _time_baselines(jobs.values(), result)


def _kept_rows(
    jobs: Mapping[str, _Job], extensions: Mapping[str, Path | LadderError], operation: Operation
) -> dict[str, Row]:
    """The cached rows of the jobs."""
    files = {
        name: _row_file(extension, jobs[name])
        for name, extension in extensions.items()
        if isinstance(extension, Path)
    }
    rows = {name: cache.read_json(file) for name, file in files.items()}
    expected = [*columns(operation)]
    return {name: row for name, row in rows.items() if isinstance(row, dict) and [*row] == expected}


def _run_job(
    job: _Job, backend: Backend, extension: Path | LadderError, progress: Steps, result: Comparison
) -> Row:
    """Runs a job and returns its row; adds reason and timing to ``result``. Raises build and run errors."""
    if isinstance(extension, LadderError):
        raise extension
    name = job.stage.name
    with progress.step(name), backend.runner(extension, job.target) as runner:
        found = _judge(job, backend, runner, timed=True)
    if found.text:
        result.reasons[name] = found.text
    if found.execution.timing is not None:
        result.timings[name] = found.execution.timing
    if backend.is_exact:
        with suppress(CacheError):  # the row is computed again next time
            cache.write_text(_row_file(extension, job), json.dumps(found.row, indent=0))
    return found.row


def _time_baselines(jobs: Iterable[_Job], result: Comparison) -> None:
    from ladder.run.backends import timing

    for job in jobs:
        dtype = str(job.problem.dtype)
        if dtype not in result.baselines:
            with memory.guarded(job.problem):
                result.baselines[dtype] = timing.baselines(job.problem)


def _empty_row(job: _Job, backend: Backend) -> Row:
    return make_row(job.stage.name, backend.name, job.target.arch, job.problem)


def _judge(
    job: _Job,
    backend: Backend,
    runner: Runner,
    *,
    thoroughly: bool = False,
    timed: bool = False,
    details: bool = False,
) -> Evaluation:
    """Runs the job and checks what came of it. Raises the errors of the run."""
    problem, operation = job.problem, operation_of(job.problem)
    with memory.guarded(problem):
        inputs = operation.make_inputs(problem, backend.device)
        execution = runner.run(problem, inputs, timed=timed, details=details)
        expected = reference_of(problem, inputs)
        errors = expected.errors(execution.outputs)
        if backend.varies:
            verdict.require_kernels(runner, problem, inputs, execution)
            if thoroughly and expected.passed(errors):
                again = verdict.run_otherwise(runner, problem, inputs)
                if job.stage.deterministic:
                    verdict.require_same_outputs(execution, again)
                else:
                    errors = verdict.larger_errors(errors, expected.errors(again.outputs))
    row = _empty_row(job, backend)
    fill_row(row, problem, expected, errors, execution.counters, execution.time_ms)
    return Evaluation(problem, row, execution, expected, errors)


def verdict_key(extension: Path) -> str:
    """A digest of what a verdict depends on besides the problem: build, emulator, torch, checks."""
    package = Path(__file__).parents[2]
    sources = sorted(path for folder in _ROW_FOLDERS for path in (package / folder).rglob("*.py"))
    libraries = sorted(emulator_library().directory.rglob("*.so"))
    files = [path.read_bytes() for path in [*sources, *libraries]]
    return cache.digest([extension.parent.name, importlib.metadata.version("torch"), *files])


def _row_file(extension: Path, job: _Job) -> Path:
    name = cache.digest([verdict_key(extension), job.problem.operation, repr(job.problem)])
    return cache.root() / "rows" / f"{name}.json"
