"""``python -m ladder.bench WHAT``: measures and prints a table; see ``--help``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from ladder.errors import LadderError

#: Modules of this package, each with add_arguments(parser) and main(options).
BENCHMARKS = {
    "emulator": "how fast the interpreter is: warp instructions a second and core",
    "gpu": "the speed of every rung on the GPU that is there, beside torch's attention",
    "ceilings": "what the units of the GPU do at most: the rates that no kernel gets beyond",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark and returns the exit code of the command."""
    parser = argparse.ArgumentParser(prog="python -m ladder.bench", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    modules = {}
    for name, description in BENCHMARKS.items():
        modules[name] = importlib.import_module(f"ladder.bench.{name}")
        modules[name].add_arguments(commands.add_parser(name, help=description, description=description))
    options = parser.parse_args(arguments)
    try:
        return int(modules[options.what].main(options))
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
