"""Stages under Nsight Compute: a GPU's counters beside the emulator's prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.counts.profiling.hardware import Counted, profile, read
    from ladder.counts.profiling.runs import (
        Run,
        collect,
        collect_known,
        read_report,
        read_runs,
        runs_of,
        sum_launches,
        with_run,
    )

__getattr__ = door(__name__)
