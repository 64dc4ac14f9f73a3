"""``ladder port``: carries a fix of a rung into the rungs that stand on it."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.cli.options import add_command
from ladder.common.terminal import console

if TYPE_CHECKING:
    from ladder.stages import Merge


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands, "port", _run, "carry a change of a rung's file into the rungs that stand on it"
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a rung's file that you have changed")
    parser.add_argument(
        "--since", default="HEAD", metavar="COMMIT", help="the commit before the change (HEAD)"
    )
    parser.add_argument("--write", action="store_true", help="write the files to which all of it applies")


def _run(options: argparse.Namespace) -> int:
    from ladder.stages import port

    merges = port(options.file, options.since)
    for merge in merges:
        if options.write and merge.applies:
            merge.path.write_text(merge.text, encoding="utf-8")
        _show(_report(merge, options.write))
    applied, failed = sum(m.applies for m in merges), sum(bool(m.conflicts) for m in merges)
    done = "written" if options.write else "to write, with --write"
    _show([f"{len(merges)} rungs above: {applied} {done}, {failed} with parts that do not apply"])
    return 1 if failed else 0


def _report(merge: Merge, written: bool) -> list[str]:
    """The lines about one rung: the change as a diff, or each part that does not apply."""
    name = merge.stage.name
    if merge.conflicts:
        lines = [f"{name}: {len(merge.conflicts)} parts do not apply, nothing is written"]
        for conflict in merge.conflicts:
            lines += ["  the rung has:", *_indented(conflict.ours)]
            lines += ["  the change, from:", *_indented(conflict.before)]
            lines += ["  to:", *_indented(conflict.after)]
        return lines
    if not merge.applies:
        return [f"{name}: nothing to change"]
    now, text = merge.now.splitlines(), merge.text.splitlines()
    changes = list(difflib.unified_diff(now, text, n=1, lineterm=""))[2:]
    return [f"{name}: {'written' if written else 'applies'}", *(f"    {line}" for line in changes)]


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()] or ["    (no line)"]


def _show(lines: list[str]) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
