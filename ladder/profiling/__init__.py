"""Stages under Nsight Compute: a GPU's counters beside the emulator's prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.profiling.hardware import (
        Counted,
        profile,
        read,
    )
    from ladder.profiling.runs import (
        Run,
        collect,
        collect_known,
        read_report,
        read_runs,
        runs_of,
        sum_launches,
        with_run,
    )

_NAMES = {
    "Counted": "hardware",
    "Run": "runs",
    "collect": "runs",
    "collect_known": "runs",
    "profile": "hardware",
    "read": "hardware",
    "read_report": "runs",
    "read_runs": "runs",
    "runs_of": "runs",
    "sum_launches": "runs",
    "with_run": "runs",
}

__getattr__ = door(__name__, _NAMES)
