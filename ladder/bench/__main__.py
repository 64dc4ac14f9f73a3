"""``python -m ladder.bench WHAT``: see ``--help``."""

from __future__ import annotations

import argparse
import importlib
import sys

from rich.console import Console

from ladder.errors import LadderError

#: Modules of this package, each with add_arguments(parser) and main(options).
BENCHMARKS = {"gpu": "speed of every rung on the GPU that is there, beside torch's attention"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ladder.bench", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    modules = {}
    for name, description in BENCHMARKS.items():
        modules[name] = importlib.import_module(f"ladder.bench.{name}")
        modules[name].add_arguments(commands.add_parser(name, help=description, description=description))
    options = parser.parse_args()
    try:
        return int(modules[options.what].main(options))
    except LadderError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", highlight=False)
        return 2


if __name__ == "__main__":
    sys.exit(main())
