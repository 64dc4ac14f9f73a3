"""What each command of ``ladder`` does. Each returns the exit code.

Modules that take long to load are loaded by the command that needs them.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from ladder import environment, files
from ladder.errors import LadderError, UnsupportedProblem
from ladder.progress import steps
from ladder.terminal import console, errors, print_table, show_error, source_width

if TYPE_CHECKING:
    from ladder.access import Service
    from ladder.comparison import Comparison
    from ladder.emulate import ProgramResult
    from ladder.hardware import Counted
    from ladder.problem import Problem


def _problem(options: argparse.Namespace) -> Problem:
    """The problem that the options describe, with the backend's default sizes where they give none."""
    from ladder.backends import get_backend
    from ladder.matrix import DEFAULT_GPU_PROBLEM, DEFAULT_PROBLEM
    from ladder.problem import Problem, parse_dtype

    others = {
        "kv_heads": options.kv_heads,
        "dtype": parse_dtype(options.dtype) if options.dtype is not None else None,
        "is_causal": options.causal,
        "scale": options.scale,
        "inputs": options.inputs,
    }
    if options.problem is not None:
        return Problem.parse(options.problem, **others)
    base = DEFAULT_PROBLEM if get_backend(options.backend).name == "emulator" else DEFAULT_GPU_PROBLEM
    return Problem(base.batch, base.heads, base.q_len, base.kv_len, base.head_dim, **others)


def _is_problem_given(options: argparse.Namespace) -> bool:
    values = (options.problem, options.kv_heads, options.dtype, options.scale)
    return any(value is not None for value in values) or options.causal or options.inputs != "normal"


def _require_emulator(options: argparse.Namespace, what: str) -> None:
    """Chooses the emulator, and with it problems of its size. Raises :class:`LadderError`."""
    if options.backend not in ("auto", "emulator"):
        raise LadderError(f"--backend {options.backend}: only the emulator {what}", "Leave it out.")
    options.backend = "emulator"


def _options(options: argparse.Namespace) -> dict[str, str]:
    from ladder.stages import parse_options

    return parse_options(",".join(options.option))


def compare_stages(options: argparse.Namespace) -> int:
    from ladder.comparison import run_comparison

    result = run_comparison(
        _problem(options),
        options.stages or None,
        backend=options.backend,
        arch=options.arch,
        options=_options(options),
        fresh=options.fresh,
    )
    if options.json != "-" and result.rows:
        _print_comparison(result)
    _write_rows(options.json, result.rows)
    for name, skip in result.skipped.items():
        errors.print(f"{name} is left out: {escape(skip.message)}", highlight=False, soft_wrap=True)
    if result.cached:
        rows = "row was" if result.cached == 1 else "rows were"
        errors.print(f"{result.cached} {rows} computed before; --fresh computes again", style="dim")
    if any(row["backend"] == "cuda" for row in result.rows):
        errors.print("a GPU's counters are not read here; --backend emulator counts", style="dim")
    for row in result.rows:
        if row["stage"] not in result.failed:
            _say_where_wrong(row, options)
    for name, error in result.failed.items():
        show_error(error, name)
    return 0 if result.passed else 1


def _say_where_wrong(row: dict[str, Any], options: argparse.Namespace) -> None:
    """What to do next about a result that is wrong."""
    if row["passed"]:
        return
    words = [row["stage"]]
    if row["backend"] == "emulator":  # a GPU's problem may be too large for it
        words += [_problem(options).command_options, "--arch " + row["arch"] if options.arch else ""]
    words += [f"--option {shlex.quote(option)}" for option in options.option]
    command = " ".join(filter(None, words))
    errors.print(
        f"{row['stage']} is wrong; what and where: ladder check {escape(command)}",
        highlight=False,
        soft_wrap=True,
    )


def _print_comparison(comparison: Comparison) -> None:
    from ladder.render import comparison_tables
    from ladder.stages import discover

    for table in comparison_tables(comparison, discover(), console.width):
        print_table(table)


def _write_rows(target: str | None, rows: Sequence[dict[str, Any]]) -> None:
    from ladder.table import to_json

    if target == "-":
        print(to_json(rows))
    elif target:
        files.write(Path(target), f"{to_json(rows)}\n".encode())


def run_stage(options: argparse.Namespace) -> int:
    from ladder.comparison import Comparison, evaluate

    problem = _problem(options)
    evaluation = evaluate(
        options.stage, problem, backend=options.backend, arch=options.arch, options=_options(options)
    )
    if options.json != "-":
        _print_comparison(Comparison([evaluation.row]))
    _write_rows(options.json, [evaluation.row])
    if not evaluation.passed:
        errors.print(f"[bold red]wrong:[/] {escape(evaluation.describe())}", highlight=False, soft_wrap=True)
        _say_where_wrong(evaluation.row, options)
    return 0 if evaluation.passed else 1


def build_stages(options: argparse.Namespace) -> int:
    from ladder.backends import get_backend
    from ladder.build import build_all
    from ladder.stages import discover

    ladder = discover()
    backend = get_backend(options.backend)
    wanted = [ladder[name] for name in options.stages] if options.stages else list(ladder)
    broken: list[LadderError] = [] if options.stages else list(ladder.broken.values())
    results = build_all(
        wanted,
        {stage.name: backend.target(stage, options.arch) for stage in wanted},
        {stage.name: stage.chosen_options(_options(options)) for stage in wanted},
    )
    for name, result in results.items():
        if isinstance(result, LadderError):
            broken.append(result)
        else:
            console.print(f"{name}  {result}", highlight=False, soft_wrap=True)
    for error in broken:
        show_error(error)
    return 1 if broken else 0


def show_lines(options: argparse.Namespace) -> int:
    from ladder.comparison import evaluate
    from ladder.lines import annotate, line_table
    from ladder.lines_page import page
    from ladder.render import source_note, source_table

    _require_emulator(options, "counts line by line")
    problem = _problem(options)
    evaluation = evaluate(
        options.stage, problem, backend="emulator", arch=options.arch, options=_options(options)
    )
    table = line_table(evaluation.execution.launches)
    annotated = annotate(table)
    if options.html:
        files.write(options.html, page(annotated, options.stage, evaluation.row).encode())
    if options.json != "-":
        for listing in annotated.files:
            context = None if options.all else options.context
            print_table(source_table(listing, annotated, context, source_width()))
            console.print()
        console.print(source_note(annotated), style="dim", highlight=False)
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    _write_rows(options.json, [{str(name): value for name, value in row.items()} for row in rows])
    return 0


def check_stages(options: argparse.Namespace) -> int:
    from ladder.check import PROBLEMS, check_stage
    from ladder.render_findings import findings_lines
    from ladder.stages import discover

    _require_emulator(options, "sees every access")
    problems = (_problem(options),) if _is_problem_given(options) else PROBLEMS
    ladder = discover()
    rows, names = [], options.stages or [stage.name for stage in ladder]
    refused: list[LadderError] = []
    for name in names:
        try:
            findings = check_stage(ladder[name], problems, arch=options.arch, options=_options(options))
        except UnsupportedProblem as error:
            refused.append(error)
            errors.print(f"{name} is left out: {escape(error.message)}", highlight=False, soft_wrap=True)
            continue
        rows += [{"stage": name, **finding.as_row()} for finding in findings]
        if options.json != "-":
            _print_lines(findings_lines(findings, name))
    if len(refused) == len(names):
        raise UnsupportedProblem("no stage takes this problem")
    _write_rows(options.json, rows)
    return 1 if rows else 0


def count_access(options: argparse.Namespace) -> int:
    from ladder import bank
    from ladder.access import AccessError, parse_mask
    from ladder.render_access import exploration_lines

    if options.element not in (None, *bank.ELEMENT_SIZES):
        raise AccessError(
            f"--element {options.element} is no size of an element",
            f"It is one of {', '.join(map(str, bank.ELEMENT_SIZES))} bytes.",
        )
    found = bank.explore(
        options.op,
        options.address,
        width=options.width,
        swizzle=bank.Swizzle.parse(options.swizzle) if options.swizzle is not None else None,
        active=parse_mask(options.active) if options.active is not None else 2**32 - 1,
    )
    if options.picture:
        swizzled = f", swizzled by {found.swizzle} (bytes)" if found.swizzle else ""
        _save_picture(found.service, f"{found.access} at {options.address}{swizzled}", options.picture)
    _print_lines(exploration_lines(found, console.width, options.element))
    return 0


def explain_access(options: argparse.Namespace) -> int:
    from ladder.explanation import explain
    from ladder.render_access import explanation_lines

    _require_emulator(options, "sees addresses")
    found = explain(
        options.place,
        _problem(options),
        arch=options.arch,
        options=_options(options),
        instruction=options.instruction,
    )
    if options.picture:
        _save_picture(found.service, found.title, options.picture)
    _print_lines(explanation_lines(found, console.width))
    return 0


def profile_stages(options: argparse.Namespace) -> int:
    from ladder.comparison import run_comparison
    from ladder.errors import ProfilerError
    from ladder.hardware import profile, read

    if options.reports:
        if options.stages or options.report or options.option or _is_problem_given(options):
            raise LadderError(
                "--import reads what was profiled before, and stages, problems or --report are given, too",
                "Leave one of them out.",
            )
        return _show_counted(read(options.reports), options)
    options.backend = "emulator"  # its default problem: at most one block an SM, where counters are exact
    problem, chosen = _problem(options), _options(options)
    if options.report is not None and options.report.suffix != ".ncu-rep":
        raise LadderError(f"{options.report} does not end in .ncu-rep", "ncu gives its reports that ending.")
    try:
        return _show_counted(profile(options.stages, problem, options=chosen, report=options.report), options)
    except ProfilerError as error:
        show_error(error)
    errors.print("What the emulator counts, instead:", highlight=False)
    result = run_comparison(problem, options.stages or None, backend="emulator", options=chosen)
    if options.json != "-":
        _print_comparison(result)
    _write_rows(options.json, result.rows)
    return 2


def _show_counted(counted: list[Counted], options: argparse.Namespace) -> int:
    from ladder.render_profile import bounds_table, line_tables, note, profile_tables

    rows = [row for one in counted for row in (one.row, one.predicted) if row is not None]
    if options.json != "-":
        for table in (*profile_tables(counted), bounds_table(counted)):
            if table is not None:
                console.print(table, crop=False)
        for table in line_tables(counted, source_width()):
            print_table(table)
        if note(counted):
            console.print(note(counted), style="dim", highlight=False)
    _write_rows(options.json, rows)
    return 0


def _print_lines(lines: Iterable[Any]) -> None:
    for line in lines:
        console.print(line, soft_wrap=not isinstance(line, Table), highlight=False)


def _save_picture(service: Service, title: str, path: Path) -> None:
    from ladder import plots
    from ladder.plots.access import access_picture

    plots.save(access_picture(service, title), path)
    errors.print(f"wrote {path}", style="dim", highlight=False)


def make_stage(options: argparse.Namespace) -> int:
    from ladder.new_stage import new_stage
    from ladder.stages import OWN_STAGES, discover, own_folder

    stage = new_stage(options.name, options.origin, options.folder)
    folder = stage.path.parent
    lines = [f"{stage.kernel} is yours to change."]
    if own_folder(OWN_STAGES) == folder:
        lines.append(f"It is a rung wherever you are in {folder.parent}.")
    elif stage.name not in [found.name for found in discover()]:
        lines.append(f"To have it found there: export LADDER_STAGES={shlex.quote(str(folder))}")
    lines += [f"  ladder compare {options.origin} {stage.name}", f"  ladder lines {stage.name}"]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    return 0


def gather_wheels(options: argparse.Namespace) -> int:
    from ladder.wheelhouse import fill

    wheels = fill(options.folder, options.extra_index_url)
    megabytes = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    console.print(
        f"{options.folder}: {len(wheels)} wheels, {megabytes:,.0f} MB", highlight=False, soft_wrap=True
    )
    console.print(
        f"Without a network: make compare WHEELHOUSE={shlex.quote(str(options.folder))}",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def draw_picture(options: argparse.Namespace) -> int:
    from ladder import plots
    from ladder.plots.gallery import PICTURES, picture

    if options.name is None:
        if options.out is not None:
            raise LadderError(
                "--out says where to write a picture, but none is named", "ladder plot lists them"
            )
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, named in PICTURES.items():
            table.add_row(name, named.text)
        console.print(table)
        return 0
    path = options.out or Path(f"{options.name}.png")
    plots.check_kind(path)
    files.require_target(path)
    with steps("Drawing", 1, elsewhere=False) as progress, progress.step(options.name):
        plots.save(picture(options.name), path)
    errors.print(f"wrote {path}", style="dim", highlight=False)
    return 0


def list_stages(options: argparse.Namespace) -> int:
    from ladder.render import stages_table
    from ladder.stages import discover

    ladder = discover()
    console.print(stages_table(ladder))
    for error in ladder.broken.values():
        show_error(error)
    return 1 if ladder.broken else 0


def examine_machine(options: argparse.Namespace) -> int:
    from ladder.doctor import ABSENT, MISSING, OK, examine

    signs = {OK: "[green]ok[/]     ", ABSENT: "[yellow]absent[/] ", MISSING: "[bold red]missing[/]"}
    missing = False
    for finding in examine():
        missing |= finding.state == MISSING
        line = f"{signs[finding.state]}  {finding.what:<21} {escape(finding.detail)}"
        console.print(line, highlight=False, soft_wrap=True)
        if finding.remedy:
            for text in finding.remedy.splitlines():
                console.print(f"{'':31} {escape(text)}", highlight=False, soft_wrap=True, style="cyan")
    return 1 if missing else 0


def emulate_program(options: argparse.Namespace) -> int:
    from ladder.emulate import CRASHES, emulate
    from ladder.render import launches_tables

    flags = [f"-I{Path(directory).absolute()}" for directory in options.include] + [
        f"-D{name}" for name in options.define
    ]
    try:
        flags += [flag for flags in options.nvcc_flags for flag in shlex.split(flags)]
    except ValueError as error:
        raise LadderError(
            f"--nvcc-flags cannot be taken apart: {error}", 'For example --nvcc-flags="-O1 --extended-lambda"'
        ) from None
    result = emulate(
        options.sources, options.program_arguments, flags=flags, arch=options.arch, check=options.check
    )
    if result.signal:
        where = ", in the host's code" if result.signal in CRASHES else ""
        errors.print(f"[bold red]died:[/] by {result.signal}{where}", highlight=False)
    if options.check or environment.check_is_on():
        return _show_checked(options, result)
    if options.json != "-" and result.launches:
        for table in launches_tables(result.launches):
            console.print(table)
    if result.fault:
        errors.print(f"[bold red]fault:[/] {escape(result.fault)}", highlight=False, soft_wrap=True)
    _write_rows(options.json, [launch.as_row() for launch in result.launches])
    return result.exit_code or (1 if result.fault else 0)


def _show_checked(options: argparse.Namespace, result: ProgramResult) -> int:
    from ladder.render_findings import findings_lines

    if options.json != "-":
        _print_lines(findings_lines(result.findings, options.sources[0].name))
    _write_rows(options.json, [finding.as_row() for finding in result.findings])
    return result.exit_code or (1 if result.findings or result.fault else 0)
