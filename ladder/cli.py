"""The command ``ladder``.

Exit codes: 0, all well; 1, a stage is wrong or failed, or a program's kernel did; 2, the command could not be
carried out; 130, interrupted; 141, nobody reads the output any more. ``ladder emulate`` returns the program's
own where that is not 0.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from ladder import environment, files, project
from ladder.errors import LadderError, UnsupportedProblem
from ladder.exercises.commands import add_exercise_command
from ladder.progress import steps
from ladder.terminal import console, drop_output, errors, prepare_streams, print_table, source_width

if TYPE_CHECKING:
    from ladder.access import Service
    from ladder.comparison import Comparison
    from ladder.emulate import ProgramResult
    from ladder.hardware import Counted
    from ladder.problem import Problem


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    prepare_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    program_arguments: list[str] = []
    if words[:1] == ["emulate"] and "--" in words:
        split = words.index("--")
        words, program_arguments = words[:split], words[split + 1 :]
    options = _parser().parse_args(_joined(words))
    options.program_arguments = program_arguments
    try:
        _require_targets(options)
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except LadderError as error:
        _show(error)
        return 2
    except KeyboardInterrupt:
        errors.print("interrupted")
        return 130
    except BrokenPipeError:
        drop_output()
        return 141
    except OSError as error:
        if error.filename is not None:
            _show(LadderError(str(error)))
        elif isinstance(error, FileNotFoundError):
            _show(LadderError("the working directory is no longer there", "cd to one that is."))
        else:
            drop_output()
            _show(LadderError(f"cannot write the output: {error.strerror or error}"))
        return 2


def _joined(words: Sequence[str]) -> list[str]:
    """``--nvcc-flags FLAGS`` as ``--nvcc-flags=FLAGS``: argparse takes no word that begins with a dash."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--nvcc-flags":
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _require_targets(options: argparse.Namespace) -> None:
    """Looks at what a command is to write before it begins. Raises :class:`LadderError`."""
    found: dict[Path, str] = {}
    for option in ("json", "html", "picture", "report", "out"):
        target = getattr(options, option, None)
        if target is None or target == "-":
            continue
        if not str(target):
            raise LadderError(f"--{option} has no name of a file")
        path = Path(target)
        files.require_target(path)
        if path.resolve() in found:
            raise LadderError(f"--{found[path.resolve()]} and --{option} both write {path}")
        found[path.resolve()] = option
        if option == "picture":
            from ladder.plots import check_kind

            check_kind(path)


def _show(error: LadderError, stage: str = "") -> None:
    where = "" if not stage or stage in error.message.partition("\n")[0] else f"{stage}: "
    errors.print(f"[bold red]error:[/] {where}{escape(error.message)}", highlight=False, soft_wrap=True)
    if error.hint:
        errors.print(escape(error.hint), highlight=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ladder",
        description="Flash-attention kernels, rung by rung: built, run, checked and counted.",
        epilog=f"More: {project.url()}",
    )
    parser.add_argument("--version", action="version", version=f"flash-ladder {project.version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    compare = _command(commands, "compare", _compare, "run the stages on one problem and print the table")
    compare.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    _add_problem_options(compare)
    _add_json_option(compare)
    compare.add_argument("--fresh", action="store_true", help="emulate again what has been emulated before")

    run = _command(commands, "run", _run, "run one stage, never from the cache, and check it")
    run.add_argument("stage", metavar="STAGE")
    _add_problem_options(run)
    _add_json_option(run)

    build = _command(commands, "build", _build, "build stages without running them")
    build.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    _add_target_options(build)

    lines = _command(commands, "lines", _lines, "show a stage's source with the counts beside each line")
    lines.add_argument("stage", metavar="STAGE")
    shown = lines.add_mutually_exclusive_group()
    shown.add_argument(
        "--context", type=_not_negative, default=3, metavar="LINES", help="lines around those that count (3)"
    )
    shown.add_argument("--all", action="store_true", help="whole files")
    lines.add_argument("--html", type=Path, metavar="FILE", help="write a page that needs nothing else, too")
    _add_problem_options(lines)
    _add_json_option(lines)

    explain = _command(
        commands, "explain", _explain, "show one shared-memory access of a line: lanes, banks, passes"
    )
    explain.add_argument(
        "place", metavar="STAGE:LINE", help="of kernel.cu; STAGE:FILE:LINE of a helper's file"
    )
    explain.add_argument(
        "--instruction", type=int, metavar="N", help="of several at that line (the one with most conflicts)"
    )
    _add_picture_option(explain)
    _add_problem_options(explain)

    check = _command(
        commands, "check", _check, "run stages under the sanitizer: races, memory and barrier faults, by line"
    )
    check.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    _add_problem_options(check)
    _add_json_option(check)

    bank = _command(
        commands, "bank", _bank, "count the bank conflicts of an access that you write down, and mend them"
    )
    bank.add_argument("op", metavar="OP", help="ld, st, ldmatrix, stmatrix, atom, or PTX: ld.v4.f32")
    bank.add_argument(
        "address",
        metavar="ADDRESS",
        help='byte address in terms of lane, as in C: "(lane %% 16) * 256 + lane / 16 * 16"',
    )
    bank.add_argument("--width", type=int, help="bytes a lane (4), or 8x8 tiles (4)")
    bank.add_argument("--swizzle", metavar="B,M,S", help="swizzle<B, M, S> applied to the byte addresses")
    bank.add_argument("--active", metavar="LANES", help="lanes that take part: 0-15,20 or a mask 0x0000ffff")
    bank.add_argument(
        "--element",
        type=int,
        metavar="BYTES",
        help="say swizzles for elements of this size as well (2 and 4)",
    )
    _add_picture_option(bank)

    profile = _command(
        commands, "profile", _profile, "read a GPU's counters with Nsight Compute, beside the prediction"
    )
    profile.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    profile.add_argument(
        "--import",
        nargs="+",
        type=Path,
        dest="reports",
        metavar="FILE",
        help="profile nothing; read reports (.ncu-rep) of stages or of any kernels, raw and source pages of "
        "them (.csv), or what results/measure_counters.py wrote",
    )
    profile.add_argument("--report", type=Path, metavar="FILE.ncu-rep", help="keep the report")
    _add_problem_options(profile, with_target=False)
    _add_option_option(profile.add_argument_group("where"))
    _add_json_option(profile)

    plot = _command(commands, "plot", _plot, "draw a picture of the lessons; without a name, list them")
    plot.add_argument("name", nargs="?", metavar="NAME")
    plot.add_argument("--out", type=Path, metavar="FILE", help="a .png, .svg or .pdf (NAME.png)")

    _command(commands, "stages", _stages, "list the stages")
    _command(commands, "doctor", _doctor, "say what is installed and what to do about what is missing")

    new = _command(commands, "new", _new, "make a rung of your own: a working copy of one that is there")
    new.add_argument("name", metavar="NAME")
    new.add_argument("--from", dest="origin", required=True, metavar="STAGE", help="what to start from")
    new.add_argument(
        "--folder", type=Path, metavar="DIR", help="where to put it (my_rungs, here or in a folder above)"
    )

    add_exercise_command(commands)

    wheelhouse = _command(
        commands, "wheelhouse", _wheelhouse, "gather wheels for machines without a network in one folder"
    )
    wheelhouse.add_argument("folder", type=Path, metavar="DIR")
    wheelhouse.add_argument(
        "--extra-index-url", action="append", default=[], metavar="URL", help="ask this index, too"
    )

    emulate = _command(
        commands, "emulate", _emulate, "build and run any CUDA program: ladder emulate prog.cu [-- arguments]"
    )
    emulate.epilog = "Returns the program's exit code; 1 where that is 0 and one of its kernels faulted."
    emulate.add_argument("sources", nargs="+", type=Path, metavar="prog.cu")
    emulate.add_argument(
        "-I", action="append", default=[], dest="include", metavar="DIR", help="for the compiler"
    )
    emulate.add_argument(
        "-D", action="append", default=[], dest="define", metavar="NAME", help="for the compiler"
    )
    emulate.add_argument(
        "--nvcc-flags",
        action="append",
        default=[],
        metavar="FLAGS",
        help='any more for the compiler, behind its own: --nvcc-flags="-O1 --extended-lambda"',
    )
    emulate.add_argument("--arch", default=None, help="virtual GPU (sm_80)")
    emulate.add_argument(
        "--check", action="store_true", help="run it under the sanitizer; --json then writes what it found"
    )
    _add_json_option(emulate)
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.set_defaults(run=run)
    return parser


def _add_problem_options(parser: argparse.ArgumentParser, with_target: bool = True) -> None:
    group = parser.add_argument_group("problem")
    group.add_argument("--problem", metavar="B,H,N,M,d", help="batch, heads, queries, keys, head dim")
    group.add_argument("--kv-heads", type=int, metavar="N", help="heads of k and v (as many as q has)")
    group.add_argument("--dtype", help="f32, f16 or bf16 (the first that a stage takes)")
    group.add_argument("--causal", action="store_true", help="query i sees keys j <= i alone")
    group.add_argument("--scale", type=_number, help="factor of the logits (1 / sqrt(d))")
    group.add_argument("--inputs", default="normal", help="normal, large, negative, equal or dominant")
    if with_target:
        _add_target_options(parser)


def _add_target_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where")
    group.add_argument("--backend", default="auto", help="auto (a GPU if there is one), emulator or cuda")
    group.add_argument("--arch", help="virtual GPU of the emulator: sm_75, sm_80, sm_86, sm_89 or sm_90")
    _add_option_option(group)


def _add_option_option(group: Any) -> None:
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the stage's stage.toml",
    )


def _add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE", help="write the rows there as JSON too; - prints them and no table"
    )


def _add_picture_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write it as .png, .svg or .pdf, too")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def _not_negative(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 0")
    return int(text)


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


def _compare(options: argparse.Namespace) -> int:
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
        _show(error, name)
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


def _run(options: argparse.Namespace) -> int:
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


def _build(options: argparse.Namespace) -> int:
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
        _show(error)
    return 1 if broken else 0


def _lines(options: argparse.Namespace) -> int:
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


def _check(options: argparse.Namespace) -> int:
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


def _bank(options: argparse.Namespace) -> int:
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


def _explain(options: argparse.Namespace) -> int:
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


def _profile(options: argparse.Namespace) -> int:
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
        _show(error)
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


def _new(options: argparse.Namespace) -> int:
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


def _wheelhouse(options: argparse.Namespace) -> int:
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


def _plot(options: argparse.Namespace) -> int:
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


def _stages(options: argparse.Namespace) -> int:
    from ladder.render import stages_table
    from ladder.stages import discover

    ladder = discover()
    console.print(stages_table(ladder))
    for error in ladder.broken.values():
        _show(error)
    return 1 if ladder.broken else 0


def _doctor(options: argparse.Namespace) -> int:
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


def _emulate(options: argparse.Namespace) -> int:
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


if __name__ == "__main__":
    sys.exit(main())
