#!/usr/bin/env python3
"""Fills the tables of the lessons and the README from measurements and counts.

    python -m tools.measure.tables [--check]

A table is enclosed by ``<!-- table NAME -->`` and ``<!-- end of table -->``. With ``--check``, nothing is
written, and the exit code is 1 if a table does not match its data.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial

from ladder.operations import OPERATIONS
from ladder.stages import discover, ladder_pages
from tools.measure.tables_of import bounds, counts, estimates, rungs, several_gpus, speeds
from tools.measure.tables_of.data import ROOT

#: The files that contain tables.
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "debugger.md",
    ROOT / "docs" / "distributed.md",
    ROOT / "docs" / "instructor.md",
    ROOT / "docs" / "other_kernels.md",
    ROOT / "docs" / "rungs.md",
    ROOT / "docs" / "sanitizer.md",
    ROOT / "docs" / "speed.md",
    ROOT / "docs" / "time.md",
    *sorted((ROOT / "stages").rglob("README.md")),
)
_TABLE = re.compile(r"(<!-- table (?P<name>\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
#: The operations that have rungs; the others have an example each.
_LADDERS = ("attention", "attention_backward", "decoding", "hstu", "hstu_backward")

TABLES: dict[str, Callable[[], str]] = {
    "bounds-by-rung": bounds.bounds_by_rung,
    "estimate-errors": estimates.estimate_errors,
    "other-kernels": counts.other_kernels,
    "first-stops": counts.first_stops,
    "checks": counts.checks,
    "sanitizer": counts.sanitizer,
    "v4-kernel": lambda: counts.beside_the_algorithm("v4"),
    "climb": speeds.climb,
    "climb-lengths": speeds.climb_lengths,
    "gradient-speeds": speeds.gradient_speeds,
    "h100-speed": partial(speeds.on_h100, "speed.csv", ("v8", "v12c")),
    "h100-gradients": partial(speeds.on_h100, "backward.csv", ("b4g", "b5g")),
    "hstu-speeds": speeds.hstu_speeds,
    "hstu-peer-speeds": partial(speeds.hstu_peer_speeds, "forward"),
    "hstu-peer-speeds-backward": partial(speeds.hstu_peer_speeds, "backward"),
    "few-queries": speeds.few_queries,
    "decoding-speeds": speeds.decoding_speeds,
    "token-speeds": speeds.token_speeds,
    "several-gpus": several_gpus.several_gpus,
    "several-gpus-plan": several_gpus.plan_of_several_gpus,
    "call-times": speeds.call_times,
    "call-speeds": speeds.call_speeds,
    "peer-speeds": partial(speeds.peer_speeds, "forward"),
    "peer-speeds-backward": partial(speeds.peer_speeds, "backward"),
    "option-speeds": partial(speeds.option_speeds, "forward"),
    "option-speeds-backward": partial(speeds.option_speeds, "backward"),
    "tensor-cores": counts.tensor_cores_of_the_last,
    "swizzle-parameters": counts.swizzle_parameters,
    "arbitration": counts.arbitration,
    "any-head-dim": speeds.any_head_dim,
    "speed": speeds.speed,
    "rungs": rungs.rungs_with_speeds,
    **{f"ladder-{page.parent.name}": partial(rungs.rungs_of_ladder, page.parent) for page in ladder_pages()},
    "output": counts.output,
    **{f"takes-{operation}": partial(rungs.takes, operation) for operation in _LADDERS},
    "takes-examples": lambda: rungs.takes(*(one for one in OPERATIONS if one not in _LADDERS)),
    **{f"options-{stage.name}": partial(speeds.options, stage.name) for stage in discover() if stage.needs},
    **{
        f"gain-{stage.name}": partial(speeds.gain, stage.name)
        for stage in discover()
        if stage.before and stage.computes in speeds.SPEEDS
    },
    **{
        f"bounds-{stage.name}": partial(counts.bounds, stage.name)
        for stage in discover().computing("attention")
    },
}


def fill(text: str) -> str:
    """Regenerates the tables of a page."""
    return _TABLE.sub(lambda match: match[1] + TABLES[match["name"]]() + match[3], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a table is out of date")
    options = parser.parse_args()
    stale = []
    for page in PAGES:
        before = page.read_text()
        after = fill(before)
        if after == before:
            continue
        stale.append(page)
        if not options.check:
            page.write_text(after)
    for page in stale:
        print(f"{page.relative_to(ROOT)}: {'out of date' if options.check else 'written'}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
