"""Runs stages on a problem, checks them against float64 and makes the table of it.

torch and pandas, which take seconds to load, are loaded where they are used: rows from the cache need
neither.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ladder import cache, memory
from ladder.backends import Backend, Execution, get_backend
from ladder.build import Target, build, build_all
from ladder.emulator_library import emulator_library
from ladder.errors import InvalidProblem, LadderError, StageError, UnsupportedProblem
from ladder.matrix import DEFAULT_GPU_PROBLEM, DEFAULT_PROBLEM
from ladder.problem import Problem
from ladder.progress import steps
from ladder.stages import OptionValue, Stage, discover
from ladder.table import COLUMNS, Row, fill_row, make_row, to_frame

if TYPE_CHECKING:
    import pandas as pd

    from ladder.reference import Reference
    from ladder.timing import Timing


@dataclass(frozen=True)
class Evaluation:
    """One stage's run on one problem, checked."""

    row: Row
    execution: Execution
    reference: Reference
    error: float
    lse_error: float

    @property
    def passed(self) -> bool:
        return bool(self.row["passed"])

    def describe(self) -> str:
        """Both errors beside their bounds, for a test that fails."""
        return (
            f"{self.row['stage']}: |o - ref| = {self.error:.3g}, bound {self.reference.error_bound:.3g}; "
            f"|lse - ref| = {self.lse_error:.3g}, bound {self.reference.lse_bound:.3g}"
        )


@dataclass
class Comparison:
    """The rows of a comparison, and what kept stages out of it."""

    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, UnsupportedProblem] = field(default_factory=dict)
    failed: dict[str, LadderError] = field(default_factory=dict)
    cached: int = 0
    #: By stage; on a GPU alone.
    timings: dict[str, Timing] = field(default_factory=dict)
    #: TFLOP/s of torch's matmul and attention backends on the same GPU, by the dtype of their inputs.
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every stage that took the problem was built, ran and is right."""
        return not self.failed and bool(self.rows) and all(row["passed"] for row in self.rows)


@dataclass(frozen=True)
class _Job:
    stage: Stage
    problem: Problem
    target: Target
    options: Mapping[str, OptionValue]


def evaluate(
    stage: Stage | str,
    problem: Problem,
    *,
    backend: str = "auto",
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Evaluation:
    """Builds one stage, runs it on the problem and checks it; nothing comes from the cache of rows.

    Raises :class:`InvalidProblem` where the problem does not fit into memory, :class:`UnsupportedProblem`,
    :class:`BuildError`, :class:`ExecutionError`.
    """
    chosen = get_backend(backend)
    job = _job(discover()[stage] if isinstance(stage, str) else stage, problem, chosen, arch, options or {})
    with steps("Running", 1, elsewhere=False) as progress, progress.step(job.stage.name):
        return _evaluate(job, chosen, build(job.stage, job.target, job.options))


def compare(
    problem: Problem | None = None,
    stages: Sequence[str] | None = None,
    *,
    backend: str = "auto",
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> pd.DataFrame:
    """Runs ``stages`` (default: all) on ``problem`` and returns the table, one row a stage.

    Stages that do not take the problem are left out; one that does not build or run has a row with
    ``passed`` False and its counts empty. Results of the emulator are kept, since they are the same each
    time; ``fresh`` computes them again.

    Raises :class:`LadderError` when no stage at all takes the problem.
    """
    result = run_comparison(problem, stages, backend=backend, arch=arch, options=options, fresh=fresh)
    return to_frame(result.rows)


def run_comparison(
    problem: Problem | None = None,
    stages: Sequence[str] | None = None,
    *,
    backend: str = "auto",
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Comparison:
    """:func:`compare` with the reasons for what is missing."""
    chosen = get_backend(backend)
    if problem is None:
        problem = DEFAULT_PROBLEM if chosen.name == "emulator" else DEFAULT_GPU_PROBLEM
    ladder = discover()
    result = Comparison()
    wanted: list[Stage] = []
    for name in stages if stages is not None else [*(stage.name for stage in ladder), *ladder.broken]:
        try:
            wanted.append(ladder[name])
        except StageError as error:
            if stages is not None and name not in ladder.broken:
                raise
            result.failed[name] = error
    jobs: dict[str, _Job] = {}
    for stage in wanted:
        try:
            jobs[stage.name] = _job(stage, problem, chosen, arch, options or {})
        except UnsupportedProblem as error:
            result.skipped[stage.name] = error
    _run_jobs(jobs, chosen, result, fresh)
    if not result.rows and not result.failed:
        raise UnsupportedProblem(
            "no stage takes this problem:\n" + "\n".join(error.message for error in result.skipped.values())
        )
    return result


def _job(
    stage: Stage, problem: Problem, backend: Backend, arch: str | None, options: Mapping[str, str]
) -> _Job:
    job = _Job(stage, stage.accept(problem), backend.target(stage, arch), stage.chosen_options(options))
    memory.require(job.problem, logits=backend.device == "cpu")
    return job


def _run_jobs(jobs: Mapping[str, _Job], backend: Backend, result: Comparison, fresh: bool) -> None:
    if not jobs:
        return
    extensions = build_all(
        [job.stage for job in jobs.values()],
        {name: job.target for name, job in jobs.items()},
        {name: job.options for name, job in jobs.items()},
    )
    rows: dict[str, Row] = {}
    for name, job in jobs.items():
        extension = extensions[name]
        if isinstance(extension, Path) and backend.name == "emulator" and not fresh:
            row = _read_row(_row_file(extension, job))
            if row is not None:
                rows[name] = row
                result.cached += 1
    if len(rows) < len(jobs):
        import torch  # noqa: F401 - it may lose a Ctrl-C that comes now; one to a running kernel must not be
    with steps("Running", len(jobs) - len(rows)) as progress:
        for name, job in jobs.items():
            if name in rows:
                continue
            extension = extensions[name]
            try:
                if isinstance(extension, LadderError):
                    raise extension
                with progress.step(name):
                    evaluation = _evaluate(job, backend, extension)
                rows[name] = evaluation.row
                if evaluation.execution.timing is not None:
                    result.timings[name] = evaluation.execution.timing
                if backend.name == "emulator":
                    cache.write_text(_row_file(extension, job), json.dumps(evaluation.row, indent=0))
            except UnsupportedProblem as error:  # what only its kernel's host code knows
                result.skipped[name] = error
            except InvalidProblem:
                raise
            except LadderError as error:
                result.failed[name] = error
                rows[name] = make_row(name, backend.name, job.target.arch, job.problem)
    result.rows += [rows[name] for name in jobs if name in rows]
    if result.timings:
        from ladder import timing

        for job in jobs.values():
            dtype = str(job.problem.dtype)
            if dtype not in result.baselines:
                with memory.guarded(job.problem):
                    result.baselines[dtype] = timing.baselines(job.problem)


def _evaluate(job: _Job, backend: Backend, extension: Path) -> Evaluation:
    from ladder.inputs import make_inputs
    from ladder.reference import reference

    with memory.guarded(job.problem):
        q, k, v = make_inputs(job.problem, backend.device)
        execution = backend.execute(extension, job.target, job.problem, q, k, v, timed=True)
        expected = reference(q, k, v, is_causal=job.problem.is_causal, scale=job.problem.softmax_scale)
        error, lse_error = expected.error(execution.o), expected.lse_error(execution.lse)
    row = make_row(job.stage.name, backend.name, job.target.arch, job.problem)
    fill_row(row, job.problem, expected, error, lse_error, execution.counters, execution.time_ms)
    return Evaluation(row, execution, expected, error, lse_error)


def _row_file(extension: Path, job: _Job) -> Path:
    """Named by all that a row depends on: the build, the problem, the emulator, torch and the checks."""
    here = Path(__file__).parent
    checks = [(here / name).read_bytes() for name in ("inputs.py", "reference.py", "table.py")]
    libraries = sorted(emulator_library().directory.rglob("*.so"))
    parts = [extension.parent.name, repr(job.problem), importlib.metadata.version("torch")]
    return (
        cache.root()
        / "rows"
        / f"{cache.digest([*parts, *checks, *(p.read_bytes() for p in libraries)])}.json"
    )


def _read_row(path: Path) -> Row | None:
    try:
        row = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return row if list(row) == list(COLUMNS) else None
