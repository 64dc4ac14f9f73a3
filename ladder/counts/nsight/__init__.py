"""Nsight Compute: its command line, its reports and CSV pages in pandas, and its metrics.

No other package depends on ncu's output formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.counts.nsight.cells import read_text
    from ladder.counts.nsight.metrics import (
        ARBITRATION,
        BOUND_DETAILS,
        BOUNDS,
        COUNTERS,
        STALLS,
        TIME,
        available_metrics,
        bounds,
        counters,
        known,
        metric_names,
    )
    from ladder.counts.nsight.ncu import check_messages, command, find_ncu, import_command, page_options, run
    from ladder.counts.nsight.raw import base_unit, ranges, read_raw
    from ladder.counts.nsight.report import Report, load
    from ladder.counts.nsight.source import SOURCE_COLUMNS, opcode, read_source, source_lines

__getattr__ = door(__name__)
