"""``ladder class``: grades the exercises of a class and ranks its rungs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from ladder.cli.options import add_command, not_negative
from ladder.cli.output import say_written
from ladder.common import files
from ladder.common.terminal import console, errors, print_table
from ladder.errors import LadderError

if TYPE_CHECKING:
    from ladder.course.classroom import Entry
    from ladder.show.render import ClassPage

#: What a board can be ordered by, and the count.
_BY = {name: name for name in ("wavefronts", "instructions", "conflicts", "sectors")} | {"time": "time_ns"}


def add(commands: Any) -> None:
    """Adds ``class`` and its own subcommands to the argparse subparsers ``commands``."""
    text = "grade exercises and rank rungs of a class, a folder per student"
    parser = commands.add_parser("class", help=text, description=text[0].upper() + text[1:] + ".")
    actions = parser.add_subparsers(title="what to do", metavar="ACTION", required=True)
    grade = add_command(actions, "grade", _grade, "grade exercises; write a CSV file and a page")
    grade.add_argument(
        "--exercise",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one; default: every exercise that a student has started",
    )
    _add_folder(grade, "grades.csv")
    grade.add_argument("--html", type=Path, default=Path("class.html"), metavar="FILE", help="(%(default)s)")
    board = add_command(actions, "board", _board, "rank rungs by what they count; write a CSV file")
    board.add_argument(
        "--by", choices=_BY, default="wavefronts", help="time: the least on an H100 (%(default)s)"
    )
    _add_folder(board, "board.csv")
    board.add_argument(
        "--season",
        type=Path,
        metavar="FILE",
        help="rank solutions of the exercises that it lists; write pages",
    )
    board.add_argument(
        "--html", type=Path, default=Path("site"), metavar="FOLDER", help="for a season's pages (%(default)s)"
    )


def _add_folder(parser: argparse.ArgumentParser, csv: str) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="holds a folder for each student")
    parser.add_argument("--csv", type=Path, default=Path(csv), metavar="FILE", help="(%(default)s)")
    parser.add_argument("--jobs", type=not_negative, default=0, metavar="N", help="at a time (one per core)")


def _grade(options: argparse.Namespace) -> int:
    from ladder.course.classroom import class_page, grade_class, grades_csv
    from ladder.show.render import class_document

    grades = grade_class(options.folder, options.exercise, options.jobs)
    page = class_page(grades)
    console.print(_solved_table(page))
    for text in grades.refused:
        errors.print(escape(text), style="yellow", highlight=False, soft_wrap=True)
    _write(options.csv, grades_csv(grades))
    _write(options.html, class_document(page))
    return 1 if grades.refused else 0


def _solved_table(page: ClassPage) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("student", "solved", "stuck at"):
        table.add_column(
            heading, no_wrap=heading != "stuck at", justify="right" if heading == "solved" else "left"
        )
    for row in page.rows:
        stuck = [stop.exercise for stop in page.stops for one in stop.stuck if one.student == row.student]
        table.add_row(escape(row.student), f"{row.solved} of {len(page.exercises)}", ", ".join(stuck))
    return table


def _board(options: argparse.Namespace) -> int:
    from ladder.course.classroom import board_csv, rank

    if options.season:
        return _season(options)
    by = _BY[options.by]
    entries = rank(options.folder, by, options.jobs)
    for problem in dict.fromkeys((one.computes, one.problem) for one in entries if one.rank):
        of_problem = [one for one in entries if one.rank and (one.computes, one.problem) == problem]
        print_table(_board_table(of_problem, " ".join(problem), by))
    for one in entries:
        if one.refused:
            text = f"{one.student} is refused: {one.refused}"
            errors.print(escape(text), style="yellow", highlight=False, soft_wrap=True)
    _write(options.csv, board_csv(entries))
    return 0 if all(one.rank for one in entries) else 1


def _season(options: argparse.Namespace) -> int:
    from ladder.course.classroom import read_season, season_pages
    from ladder.show.render import season_document

    pages, refused = season_pages(options.folder, read_season(options.season), options.jobs)
    for text in refused:
        errors.print(escape(text), style="yellow", highlight=False, soft_wrap=True)
    try:
        options.html.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LadderError(f"cannot make the folder {options.html}: {error.strerror}") from error
    for name, page in pages.items():
        _write(options.html / name, season_document(page))
    return 1 if refused else 0


def _board_table(entries: list[Entry], title: str, by: str) -> Table:
    from ladder.show.render import plain_table

    table = plain_table(title)
    names = sorted(entries[0].counts, key=lambda name: name != by)
    for heading in ("", "student", *names):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "student" else "right")
    for one in entries:
        counts = ["" if (count := one.counts[name]) is None else f"{count:,}" for name in names]
        table.add_row(str(one.rank), escape(one.student), *counts)
    return table


def _write(path: Path, text: str) -> None:
    # A folder's name may be no UTF-8.
    files.write(path, text.encode("utf-8", "backslashreplace"))
    say_written(path)
