"""How far the model's times are from measured ones: ``results/estimate.csv``.

    python -m tools.measure.estimate_times --calibrated            # v1 to v12, which the model was built on
    python -m tools.measure.estimate_times                         # all the others, held out

A row is a time that a GPU took, and the model's at that launch's clock or, if it is not known, at the GPU's
highest. Where the model has no time, the row says why.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from ladder.counts.time import estimate_stage, load_gpu
from ladder.counts.time.recorded import Measured, measured_rows
from ladder.errors import LadderError
from ladder.operations import get_operation
from ladder.stages import discover

RESULTS = Path(__file__).parents[2] / "results"
#: The rungs that the model was built on.
CALIBRATED = tuple(f"v{number}" for number in range(1, 13))
COLUMNS = (
    "set",
    "gpu",
    "file",
    "stage",
    "problem",
    "clock_mhz",
    "measured_ms",
    "estimated_ms",
    "ratio",
    "why_not",
)
#: Two times that differ by more should be in the right order.
_DIFFER = 1.15


def is_calibrated(stage: str) -> bool:
    number = stage.split("_")[0].rstrip("bcdefgh")
    return number in CALIBRATED


def rows(files: str, calibrated: bool, words: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    known = {stage.name for stage in discover()}
    for measured in measured_rows(RESULTS, files):
        if measured.problem is None or measured.contender not in known:
            continue
        if not all(word in f"{measured.contender} {measured.problem.text}" for word in words):
            continue
        if is_calibrated(measured.contender) == calibrated:
            yield row_of(measured, calibrated)


def row_of(measured: Measured, calibrated: bool) -> dict[str, Any]:
    gpu = load_gpu(measured.gpu)
    row: dict[str, Any] = {
        "set": "calibrated" if calibrated else "held out",
        "gpu": measured.gpu,
        "file": measured.file,
        "stage": measured.contender,
        "problem": measured.problem and measured.problem.text,
        "clock_mhz": measured.clock_mhz and round(measured.clock_mhz),
        "measured_ms": f"{measured.ms:.5g}",
    }
    stage = discover()[measured.contender]
    try:
        kind = type(get_operation(stage.computes).default_problem)
        problem = kind.from_text(measured.problem.text if measured.problem else "")
        found = estimate_stage(stage, problem, gpu, clock_mhz=measured.clock_mhz)
    except LadderError as error:
        return {**row, "why_not": error.message}
    return {**row, "estimated_ms": f"{found.ms:.5g}", "ratio": f"{found.ms / measured.ms:.3f}"}


def summary(found: Sequence[dict[str, Any]]) -> str:
    """Median and worst error, and the share of pairs on one problem that are in the right order."""
    timed = [row for row in found if row.get("ratio")]
    if not timed:
        return "no times"
    errors = [abs(float(row["ratio"]) - 1) for row in timed]
    right = wrong = 0
    for a, b in combinations(timed, 2):
        if a["problem"] != b["problem"] or a["gpu"] != b["gpu"]:
            continue
        fast, slow = sorted((a, b), key=lambda row: float(row["measured_ms"]))
        if float(slow["measured_ms"]) > _DIFFER * float(fast["measured_ms"]):
            is_right = float(slow["estimated_ms"]) > float(fast["estimated_ms"])
            right, wrong = right + is_right, wrong + (not is_right)
    pairs = f"{right} of {right + wrong} pairs in the right order" if right + wrong else "no pairs"
    return f"{len(timed)} times: median error {median(errors):.1%}, worst {max(errors):.1%}; {pairs}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibrated", action="store_true", help="the rungs that the model was built on")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="rows of stages and problems that have them"
    )
    parser.add_argument("--files", default="h200/bounds.csv", help="of results/, with measured times")
    options = parser.parse_args()
    table = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    table.writeheader()
    found = []
    for row in rows(options.files, options.calibrated, options.only.split()):
        table.writerow(row)
        sys.stdout.flush()
        found.append(row)
    print(summary(found), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
