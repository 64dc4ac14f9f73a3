"""``python -m ladder.bench emulator [--threads N]``: prints a table."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.table import Table

from ladder.errors import LadderError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ladder.bench", description="Benchmarks.")
    parser.add_argument("part", choices=["emulator"], help="what to measure")
    parser.add_argument("--threads", type=int, default=1, help="host threads (1)")
    options = parser.parse_args()
    from ladder.bench.emulator import measure

    try:
        speeds = measure(max(1, options.threads))
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table = Table("kernel", "warp instructions", "seconds", "million a second and core")
    for column in table.columns[1:]:
        column.justify = "right"
    for speed in speeds:
        table.add_row(
            speed.kernel,
            f"{speed.warp_instructions:,}",
            f"{speed.seconds:.3f}",
            f"{speed.per_second_and_core / 1e6:.1f}",
        )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
