"""``ladder emulate``: builds and runs any CUDA program on the emulator."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from ladder.cli.options import add_command, add_flags_option, add_json_option, nvcc_flags
from ladder.cli.output import print_lines, write_rows
from ladder.common.terminal import console, errors
from ladder.run.emulator import variables

if TYPE_CHECKING:
    from ladder.run.emulator import ProgramResult


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands,
        "emulate",
        _run,
        "build, run and count any CUDA program: ladder emulate prog.cu",
    )
    parser.epilog = "Returns the program's exit code; 1 where that is 0 and one of its kernels faulted."
    parser.add_argument("sources", nargs="+", type=Path, metavar="prog.cu")
    parser.add_argument(
        "-I", action="append", default=[], dest="include", metavar="DIR", help="for the compiler"
    )
    parser.add_argument(
        "-D", action="append", default=[], dest="define", metavar="NAME", help="for the compiler"
    )
    add_flags_option(parser)
    parser.add_argument("--arch", default=None, help="virtual GPU (sm_80)")
    parser.add_argument(
        "--check", action="store_true", help="run it under the sanitizer; --json then writes the findings"
    )
    add_json_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.run.emulator import CRASHES, emulate
    from ladder.show.render import launches_tables, uncounted_line

    flags = [f"-I{Path(directory).absolute()}" for directory in options.include] + [
        f"-D{name}" for name in options.define
    ]
    flags += nvcc_flags(options)
    result = emulate(
        options.sources, options.program_arguments, flags=flags, arch=options.arch, check=options.check
    )
    if result.signal:
        where = ", in the host's code" if result.signal in CRASHES else ""
        errors.print(f"[bold red]died:[/] by {result.signal}{where}", highlight=False)
    if options.check or variables.check_is_on():
        return _show_checked(options, result)
    if options.json != "-" and result.launches:
        for table in launches_tables(result.launches):
            console.print(table)
    if result.uncounted:
        errors.print(escape(uncounted_line(result.uncounted)), highlight=False, soft_wrap=True)
    if result.fault:
        errors.print(f"[bold red]fault:[/] {escape(result.fault)}", highlight=False, soft_wrap=True)
    write_rows(options.json, [launch.as_row() for launch in result.launches])
    return result.exit_code or (1 if result.fault else 0)


def _show_checked(options: argparse.Namespace, result: ProgramResult) -> int:
    from ladder.show.render import findings_lines

    if options.json != "-":
        print_lines(findings_lines(result.findings, options.sources[0].name, result.remarks))
    write_rows(options.json, [finding.as_row() for finding in result.findings])
    return result.exit_code or (1 if result.findings or result.fault else 0)
