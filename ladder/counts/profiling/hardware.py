"""A GPU's counters beside the emulator's predictions, for stages and any other kernels.

A :class:`Counted` comes from profiling a stage here, or from a report made elsewhere.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.common.progress import steps
from ladder.counts import line_table, nsight, profiling
from ladder.counts.profiling.runs import Run
from ladder.errors import InvalidProblem, LadderError, ProfilerError, UnsupportedProblem
from ladder.operations import (
    DEFAULT_OPERATION,
    OPERATIONS,
    AnyProblem,
    Problem,
    get_operation,
    operation_of,
)
from ladder.run.backends import get_backend, gpu_is_there
from ladder.run.emulator import COUNTERS
from ladder.run.evaluation import COLUMNS, Row, evaluate, make_row, run_comparison
from ladder.stages import ARCHITECTURES, DEFAULT_ARCH, arch_number, discover

#: The table's counters, and beside them time, lost arbitration and possible bounds.
METRICS = (
    *nsight.metric_names(),
    nsight.TIME,
    nsight.ARBITRATION[0],
    *nsight.BOUNDS.values(),
    *nsight.STALLS.values(),
    "smsp__inst_executed.sum",
)

#: A launch with more work than this many default problems takes the emulator minutes.
_PREDICTED_PROBLEMS = 40

_LINE = ["file", "line", "text"]

#: The columns of a table of measurements that identify a launch. Older tables, of attention alone, have the
#: fields of the problem instead of its text.
_LAUNCH = ["stage", "problem", "kernel"]
_SIZES = ["B", "H", "Hkv", "N", "M", "d"]
_FIELDS = [*_SIZES, "dtype", "causal"]


@dataclass(frozen=True)
class Counted:
    """The hardware's counts of a stage on a problem, or of any other kernel.

    ``row`` has the table's columns; a foreign kernel's problem columns are empty. ``lost`` is the lost
    arbitration contained in its wavefronts and conflicts. ``predicted`` is the emulator's row, or None with
    the reason in ``why_not``. ``lines`` has one row for each line of CUDA that accessed shared memory:
    ``file``, ``line``, ``text``, ``executed``, ``wavefronts``, ``ideal``, and the emulator's ``predicted``
    wavefronts. In a report without lines, it has one row per SASS instruction, which is then the ``text``.
    """

    name: str
    problem: AnyProblem | None
    row: Row
    grid: str
    block: str
    launches: int
    smem_bytes: int | None = None
    executed: int | None = None
    lost: int | None = None
    bounds: Mapping[str, float | None] | None = None
    predicted: Row | None = None
    why_not: str = ""
    lines: pd.DataFrame | None = None

    def difference(self, column: str) -> int | None:
        """The hardware's count minus the emulator's; None if either is unknown."""
        if self.predicted is None or self.row[column] is None or self.predicted[column] is None:
            return None
        return int(self.row[column]) - int(self.predicted[column])


def profile(
    stages: Sequence[str] | None = None,
    problem: AnyProblem | None = None,
    *,
    options: Mapping[str, str] | None = None,
    report: Path | None = None,
) -> list[Counted]:
    """Profiles one launch of each stage on this machine's GPU, and predicts its counts on the emulator.

    ``report`` is where to keep Nsight Compute's report (``.ncu-rep``). Stages that do not take the problem
    are left out.

    Raises :class:`ProfilerError` without a GPU or a usable Nsight Compute, :class:`UnsupportedProblem` if no
    stage takes the problem.
    """
    if not gpu_is_there():
        raise ProfilerError(
            "torch sees no CUDA GPU to profile on",
            "ladder profile --import reads a report that was made elsewhere.",
        )
    ncu = nsight.find_ncu()
    backend = get_backend("cuda")
    runs, refused = [], []
    ladder = discover()
    chosen = [ladder[name] for name in stages or ()]
    if problem is None:
        problem = get_operation(chosen[0].computes if chosen else DEFAULT_OPERATION).default_problem
    for stage in chosen or ladder.computing(problem.operation):
        try:
            backend.target(stage, None)
            runs.append(Run(stage.name, stage.accept(problem), dict(options or {})))
        except UnsupportedProblem as error:
            refused.append(error.message)
    if not runs:
        raise UnsupportedProblem("no stage takes this problem:\n" + "\n".join(refused))
    with tempfile.TemporaryDirectory(prefix="ladder-") as directory:
        kept = report or Path(directory) / "profile.ncu-rep"
        profiling.collect_known(runs, kept, metrics=METRICS, sections=["SourceCounters"], ncu=ncu)
        return read([kept])


def read(paths: Sequence[Path]) -> list[Counted]:
    """Reads reports: ``.ncu-rep``, raw and source pages as CSV, or tables by ``tools/measure``.

    A source page alone has no counters of whole kernels; with the raw page of the same launches, it adds the
    lines.

    Raises :class:`LadderError`.
    """
    found: list[Counted] = []
    reports: list[tuple[Path, nsight.Report]] = []
    for path in paths:
        measurements = _measurements(path)
        if measurements is not None:
            try:
                found += _from_measurements(measurements)
            except LadderError as error:
                raise type(error)(f"{path}: {error.message}", error.hint) from error
            continue
        report = nsight.load(path)
        before = reports[-1][1] if reports else None
        if before is not None and before.source is None and report.raw is None and before.raw is not None:
            assert report.source is not None
            if report.source["launch"].nunique() == len(before.raw):
                reports[-1] = (reports[-1][0], nsight.Report(before.raw, report.source))
                continue
        reports.append((path, report))
    for path, report in reports:
        found += _from_report(report, path)
    return found


def _measurements(path: Path) -> pd.DataFrame | None:
    """Reads the file if it is a table of measurements. Raises :class:`LadderError` if it is broken."""
    if path.suffix != ".csv" or not path.is_file():
        return None
    text = nsight.read_text(path)
    header = set(text.partition("\n")[0].strip().split(","))
    if not {"stage", "kernel", "grid", "block"} <= header or not (
        {"problem"} <= header or {*_FIELDS} <= header
    ):
        return None
    try:
        lengths = {len(row) for row in csv.reader(io.StringIO(text)) if row}
        table = pd.read_csv(io.StringIO(text), low_memory=False)  # operations share columns of other types
    except (pd.errors.ParserError, csv.Error) as error:
        raise LadderError(f"{path} is no whole table: {error}") from error
    if len(lengths) > 1:
        raise LadderError(f"{path} is cut off: its rows have {min(lengths)} to {max(lengths)} cells")
    if "problem" not in header:
        table["problem"] = None
    older = table["problem"].isna()
    identity = ["stage", "kernel", *(_FIELDS if older.any() else ["problem"])]
    if table.empty or not {*identity} <= {*table} or table.loc[older, identity].isna().any(axis=None):
        raise LadderError(f"{path} is cut off: a row of it has no {', '.join(identity)}")
    sizes = _SIZES if older.any() else []
    for name in [*sizes, *nsight.metric_names()]:
        if name in table and not pd.api.types.is_numeric_dtype(table[name]):
            bad = table[name][pd.to_numeric(table[name], errors="coerce").isna()].iloc[0]
            raise LadderError(f"{path}: {bad!r} is no number; it stands under {name}")
    numbers = table.loc[older, sizes]
    if not ((numbers >= 1) & (numbers < 2**31) & (numbers % 1 == 0)).all(axis=None):
        raise LadderError(f"{path}: a row has no whole number from 1 on under {', '.join(sizes)}")
    return table


def _attention(row: pd.Series) -> Problem:
    b, h, hkv, n, m, d = (int(row[name]) for name in _SIZES)
    kv_heads = None if hkv == h else hkv
    return Problem(b, h, n, m, d, kv_heads=kv_heads, dtype=str(row["dtype"]), is_causal=bool(row["causal"]))


def _problem(stage: str, text: str) -> AnyProblem:
    """The problem of a stage. That of a stage that is not there is one of the first operation which has such
    problems. Raises :class:`InvalidProblem`.
    """
    ladder = discover()
    if stage in {one.name for one in ladder}:
        return get_operation(ladder[stage].computes).problem.from_text(text)
    for name in OPERATIONS:
        with suppress(InvalidProblem):
            return get_operation(name).problem.from_text(text)
    raise InvalidProblem(f"{text!r} is no problem of any operation")


def _from_measurements(table: pd.DataFrame) -> list[Counted]:
    """One for each stage and problem: the minimum of several launches, since lost arbitration only adds."""
    texts = [
        _attention(row).text if pd.isna(row["problem"]) else row["problem"] for _, row in table.iterrows()
    ]
    table = table.assign(problem=texts)
    counts = pd.concat([table.drop(columns=["launches"], errors="ignore"), nsight.counters(table)], axis=1)
    found, groups = [], counts.groupby(_LAUNCH, sort=False)
    with steps("Predicting", groups.ngroups, elsewhere=False) as progress:
        for key, launches in groups:
            stage, text, _ = map(str, key)
            problem = _problem(stage, text)
            first = launches.iloc[0]
            arch = str(first.get("arch", DEFAULT_ARCH))
            grid, block = str(first["grid"]), str(first["block"])
            with progress.step(stage):
                found.append(_of_stage(stage, problem, {}, launches, grid, block, arch))
    return found


def _from_report(report: nsight.Report, path: Path) -> list[Counted]:
    if report.raw is None:
        assert report.source is not None
        return _from_source(report.source)
    lines = None if report.source is None else _lines_of(report.source)
    raw = pd.concat([report.raw, nsight.counters(report.raw)], axis=1).assign(launch=range(len(report.raw)))
    for column in ("Kernel Name", "Grid Size", "Block Size"):
        if column not in raw:  # an older ncu
            raw[column] = ""
    numbers, runs = profiling.runs_of(report.raw, path)
    stages = {stage.name for stage in discover()}
    found = []
    for number, run in runs.items():
        launches = raw[(numbers == number).fillna(False)]
        if run.stage not in stages or launches.empty:
            continue
        first = launches.iloc[0]
        counted = _of_stage(
            run.stage,
            run.problem,
            run.options,
            _summed(launches),
            str(first["Grid Size"]),
            str(first["Block Size"]),
            _arch(launches),
            None if lines is None else lines[lines["launch"].isin(launches["launch"])],
            report.has_leaves,
        )
        found.append(replace(counted, launches=len(launches)))
        raw, numbers = raw.drop(index=launches.index), numbers.drop(index=launches.index)
    for (kernel, grid, block), launches in raw.groupby(
        ["Kernel Name", "Grid Size", "Block Size"], sort=False
    ):
        own = None if lines is None else lines[lines["launch"].isin(launches["launch"])]
        found.append(_of_kernel(str(kernel), str(grid), str(block), launches, own))
    return found


def _lines_of(source: pd.DataFrame) -> pd.DataFrame:
    """The lines of CUDA of a source page, or its instructions if it has no lines."""
    if source["line"].notna().any():
        return nsight.source_lines(source).assign(text="")
    instructions = source.assign(file="SASS", line=source["instruction"], text=source["sass"])
    return instructions[["launch", "kernel", *_LINE, "executed", "wavefronts", "ideal"]]


def _from_source(source: pd.DataFrame) -> list[Counted]:
    """Returns one for each kernel of a source page, with lines but without counters."""
    lines = _lines_of(source)
    found = []
    for kernel, rows in source.groupby("kernel", sort=False):
        row = {**dict.fromkeys(COLUMNS), "stage": str(kernel), "backend": "cuda"}
        own = _added(lines[lines["launch"].isin(rows["launch"])])
        found.append(Counted(str(kernel), None, row, "", "", rows["launch"].nunique(), lines=own))
    return found


def _summed(launches: pd.DataFrame) -> pd.DataFrame:
    """Combines a run's launches into one row: counts are summed, shares taken from the longest launch."""
    if len(launches) == 1:
        return launches
    longest = (
        launches.loc[[launches[nsight.TIME].idxmax()]] if nsight.TIME in launches else launches.iloc[[0]]
    )
    counts = [name for name in launches.columns if name in COUNTERS or str(name).endswith(".sum")]
    return longest.assign(**launches[counts].sum(min_count=len(launches)).to_dict())


def _of_stage(
    stage: str,
    problem: AnyProblem,
    options: Mapping[str, str],
    launches: pd.DataFrame,
    grid: str,
    block: str,
    arch: str,
    lines: pd.DataFrame | None = None,
    has_leaves: bool = True,
) -> Counted:
    """Combines repeated ``launches`` of a stage by minimum, and adds the emulator's prediction."""
    row = make_row(stage, "cuda", arch, problem) | {"passed": None}
    least = {name: launches[name].min() for name in COUNTERS}
    row |= {name: None if pd.isna(value) else int(value) for name, value in least.items()}
    row["time_ms"] = _value(launches["time_ms"].median())
    lost = launches.get(nsight.ARBITRATION[0])
    shares = nsight.bounds(launches).iloc[0]
    counted = Counted(
        stage,
        problem,
        row,
        grid,
        block,
        1,
        lost=None if lost is None or lost.isna().any() else int(lost.max()),
        bounds={str(name): _value(value) for name, value in shares.items()} if shares.notna().any() else None,
    )
    return _with_prediction(counted, options, lines, has_leaves)


def _of_kernel(
    kernel: str, grid: str, block: str, launches: pd.DataFrame, lines: pd.DataFrame | None
) -> Counted:
    row = {**dict.fromkeys(COLUMNS), "stage": kernel, "backend": "cuda", "arch": _arch(launches)}
    row |= {name: _sum(launches[name]) for name in COUNTERS}
    row["time_ms"] = _value(launches["time_ms"].sum(min_count=1))
    executed, smem = launches.get("smsp__inst_executed.sum"), launches.get("launch__shared_mem_per_block")
    return Counted(
        kernel,
        None,
        row,
        grid,
        block,
        len(launches),
        smem_bytes=None if smem is None else _sum(smem.iloc[:1]),
        executed=None if executed is None else _sum(executed),
        lines=_added(lines),
    )


def _with_prediction(
    counted: Counted, options: Mapping[str, str], lines: pd.DataFrame | None, has_leaves: bool
) -> Counted:
    assert counted.problem is not None
    problem, arch = counted.problem, _emulated(counted.row["arch"])
    limit = _PREDICTED_PROBLEMS * operation_of(problem).default_problem.flops
    if problem.flops > limit:
        return replace(
            counted, lines=_added(lines), why_not="the problem is too large to emulate in a minute"
        )
    try:
        if lines is not None and has_leaves:
            evaluation = evaluate(counted.name, problem, backend="emulator", arch=arch, options=options)
            predicted = line_table(evaluation.execution.launches)
            return replace(counted, predicted=evaluation.row, lines=_beside(lines, predicted))
        compared = run_comparison(problem, [counted.name], backend="emulator", arch=arch, options=options)
    except LadderError as error:
        return replace(counted, lines=_added(lines), why_not=error.message)
    failed = compared.failed.get(counted.name)
    if failed is not None:
        return replace(counted, lines=_added(lines), why_not=failed.message)
    return replace(counted, predicted=compared.rows[0], lines=_added(lines))


def _added(lines: pd.DataFrame | None) -> pd.DataFrame | None:
    """Sums the lines that accessed shared memory over launches; their prediction is empty."""
    if lines is None:
        return None
    columns = ["executed", "wavefronts", "ideal"]
    added = lines.groupby(_LINE, sort=True)[columns].sum(min_count=1).reset_index()
    return added[added["wavefronts"] > 0].assign(predicted=pd.Series(dtype="Int64"))


def _beside(lines: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Joins the lines that, in the emulator, contain shared-memory accesses with the counts of both sides.

    Callers' lines are left out, since ptxas's optimisations do not preserve all of them. Paths are matched by
    their ends, since the report may come from another machine.
    """
    leaves = predicted.assign(emulated=predicted["wavefronts_ld"] + predicted["wavefronts_st"])
    leaves = leaves.groupby(["file", "line"], sort=True)["emulated"].sum(min_count=1).reset_index()
    leaves = leaves[leaves["emulated"] > 0]
    measured = _added(lines)
    assert measured is not None
    ours = {file: _ending(file, set(leaves["file"])) for file in measured["file"].unique()}
    measured["file"] = measured["file"].map(lambda file: ours[file] or file)
    both = leaves.rename(columns={"emulated": "predicted"}).merge(
        measured.drop(columns="predicted"), on=["file", "line"], how="left"
    )
    return both.assign(text="")[[*_LINE, "executed", "wavefronts", "ideal", "predicted"]]


def _ending(file: str, candidates: set[str]) -> str | None:
    """The only candidate whose path ends in the same folder and name as ``file``, or None."""
    ends = [other for other in candidates if Path(other).parts[-2:] == Path(file).parts[-2:]]
    return ends[0] if len(ends) == 1 else None


def _arch(launches: pd.DataFrame) -> str:
    """Converts the column CC ("9.0") to ``sm_90``; returns the default if there is none."""
    if "CC" not in launches:
        return DEFAULT_ARCH
    return "sm_" + str(launches["CC"].iloc[0]).replace(".", "")


def _emulated(arch: str) -> str:
    """The highest virtual GPU whose features ``arch`` includes."""
    if arch in ARCHITECTURES:
        return arch
    whole = [known for known in ARCHITECTURES if not known.endswith("a")]
    below = [known for known in whole if arch_number(known) <= arch_number(arch)]
    return below[-1] if below else ARCHITECTURES[0]


def _sum(values: pd.Series) -> int | None:
    return None if values.isna().any() else int(values.sum())


def _value(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
