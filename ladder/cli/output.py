"""Output shared by several subcommands."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from ladder.cli.options import read_problem
from ladder.cli.problems import operation_of_stages
from ladder.common import files
from ladder.common.terminal import console, errors, print_table

if TYPE_CHECKING:
    from ladder.counts.banks import Placement, Service
    from ladder.run.evaluation import Comparison


def say_where_wrong(row: dict[str, Any], options: argparse.Namespace) -> None:
    """Prints which command to run next about a wrong result."""
    from ladder.run.backends import get_backend

    if row["passed"]:
        return
    words = [row["stage"]]
    if get_backend(row["backend"]).counts:  # a GPU's problem may be too large for the emulator
        words += [
            read_problem(options, operation_of_stages([row["stage"]])).command_options,
            "--arch " + row["arch"] if options.arch else "",
        ]
    words += [f"--option {shlex.quote(option)}" for option in options.option]
    command = " ".join(filter(None, words))
    errors.print(
        f"{row['stage']} is wrong; what and where: ladder check {escape(command)}",
        highlight=False,
        soft_wrap=True,
    )


#: The most rungs of which a comparison shows all counts by default.
_DETAILED = 3


def print_comparison(comparison: Comparison, details: bool = False) -> None:
    """All counts, of few rungs or with ``details``; of many rungs a line each."""
    from ladder.show.render import STORY_NOTE, comparison_tables, story_table, verdict_line
    from ladder.stages import discover

    if details or len(comparison.rows) <= _DETAILED:
        for table in comparison_tables(comparison, discover(), console.width):
            print_table(table)
        return
    console.print(verdict_line(comparison), style="bold", highlight=False, markup=False, soft_wrap=True)
    table = story_table(comparison, discover())
    print_table(table)
    if any(column.header == "fewer" for column in table.columns):
        console.print(f"{STORY_NOTE}.\n--details shows all counts.", style="dim", highlight=False)


def write_rows(target: str | None, rows: Sequence[dict[str, Any]]) -> None:
    from ladder.run.evaluation import to_json

    if target == "-":
        print(to_json(rows))
    elif target:
        files.write(Path(target), f"{to_json(rows)}\n".encode())


def print_lines(lines: Iterable[Any]) -> None:
    for line in lines:
        console.print(line, soft_wrap=not isinstance(line, Table), highlight=False)


def save_picture(what: Service | Sequence[Placement], title: str, path: Path) -> None:
    """Writes the picture of an access, or of tiles."""
    from ladder.counts.banks import Service
    from ladder.show import plots

    if isinstance(what, Service):
        figure = plots.access_picture(what, title)
    else:
        figure = plots.placement_picture(what, title)
    plots.save(figure, path)
    say_written(path)


def say_written(path: Path) -> None:
    errors.print(f"wrote {path}", style="dim", highlight=False, markup=False)
