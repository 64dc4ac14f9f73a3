"""The command line of ``ladder torch`` and ``python -m ladder.torch``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from ladder.common import files
from ladder.common.terminal import console, errors, print_table

if TYPE_CHECKING:
    from ladder.run.emulator import ProgramResult

DESCRIPTION = "run a PyTorch script for CUDA, extensions included"
EPILOG = (
    "Returns the script's exit code; 1 where that is 0 and one of its kernels faulted or has findings, or "
    "the check did not end."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--arch", default=None, help="virtual GPU (sm_80)")
    parser.add_argument("--check", action="store_true", help="run its kernels under the sanitizer")
    parser.add_argument("--lines", action="store_true", help="also show the counts of each source line")
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="also write the launches, or with --check the findings, there as JSON; - prints only them",
    )
    parser.add_argument("script", type=Path, metavar="script.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")


def run(options: argparse.Namespace) -> int:
    """Runs the script, shows what it launched and returns the exit code."""
    from ladder.call.torch.scripts import run_script
    from ladder.run.emulator import CRASHES
    from ladder.show.render import findings_lines, launch_lines_table, launches_tables, uncounted_line

    result = run_script(options.script, options.arguments, arch=options.arch, check=options.check)
    if result.signal:
        where = ", in the host's code" if result.signal in CRASHES else ""
        errors.print(f"[bold red]died:[/] by {result.signal}{where}", highlight=False)
    shows = options.json != "-"
    for table in launches_tables(result.launches) if shows and result.launches else ():
        console.print(table)
    if result.uncounted:
        errors.print(escape(uncounted_line(result.uncounted)), highlight=False, soft_wrap=True)
    if options.lines and shows:
        for launch in result.launches:
            print_table(launch_lines_table(launch.kernel, launch.lines))
    if result.fault and not options.check:
        errors.print(f"[bold red]fault:[/] {escape(result.fault)}", highlight=False, soft_wrap=True)
    if not result.is_judged:
        errors.print(
            f"[bold red]not checked:[/] the process of {escape(options.script.name)} ended before the "
            "sanitizer had written its findings",
            highlight=False,
            soft_wrap=True,
        )
    elif options.check and shows:
        for line in findings_lines(result.findings, options.script.name, result.remarks):
            console.print(line)
    if options.json and result.is_judged:
        _write(options.json, _rows(result, options.check))
    return result.exit_code or int(bool(result.findings or result.fault) or not result.is_judged)


def _write(target: str, rows: Sequence[dict[str, object]]) -> None:
    from ladder.run.evaluation import to_json

    text = to_json(rows)
    if target == "-":
        print(text)
    else:
        files.write(Path(target), f"{text}\n".encode())


def _rows(result: ProgramResult, check: bool) -> list[dict[str, object]]:
    if check:
        return [finding.as_row() for finding in result.findings]
    return [{**launch.as_row(), "lines": list(launch.lines)} for launch in result.launches]
