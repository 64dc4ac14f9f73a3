"""``python -m tools.bench WHAT``: measures and prints a table; see ``--help``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from ladder.errors import LadderError

#: Modules of this package that define add_arguments(parser) and main(options).
BENCHMARKS = {
    "emulator": "how fast the interpreter is: warp instructions a second and core",
    "gpu": "the speed of every rung on the GPU that is there, beside torch's attention",
    "calls": "what a call of ladder.attention costs on the host, beside torch's",
    "norm_gate": "ladder.norm_gate on the GPU that is there, forward and backward, beside torch's layer norm",
    "random": "whether every rung is right on problems drawn at random; prints those on which one is not",
    "mutants": "how many wrong rungs, made by machine, the verdicts find",
    "gaps": "how many wrong answers, made by machine, the checks of exercises refuse",
    "verify": "whether ladder verify refuses wrong candidates and passes right ones: results/verify.csv",
    "latencies": "the parameters of the model of time, for a GPU's file of rates",
    "ceilings": "what the units of the GPU do at most: the rates that no kernel gets beyond",
}
_MODULES = {"emulator": "emulation"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark and returns the exit code of the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    words = sys.argv[1:] if arguments is None else list(arguments)
    module: Any = None
    for name, description in BENCHMARKS.items():
        one = commands.add_parser(name, help=description, description=description)
        # Import only the chosen benchmark: a machine with a GPU may lack the emulator.
        if words[:1] == [name]:
            module = importlib.import_module(f"tools.bench.{_MODULES.get(name, name)}")
            module.add_arguments(one)
    options = parser.parse_args(words)
    try:
        return int(module.main(options))
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
