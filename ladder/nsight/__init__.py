"""Nsight Compute: its command line, its reports and CSV pages in pandas, and its names for what it counts.

This is the one package that knows what ncu prints.
"""

from __future__ import annotations

from ladder.nsight.command import check_messages, command, find_ncu, import_command, page_options, run
from ladder.nsight.metrics import (
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
from ladder.nsight.raw import ranges, read_raw
from ladder.nsight.report import Report, load
from ladder.nsight.source import SOURCE_COLUMNS, opcode, read_source, source_lines

__all__ = [
    "ARBITRATION",
    "BOUNDS",
    "BOUND_DETAILS",
    "COUNTERS",
    "SOURCE_COLUMNS",
    "STALLS",
    "TIME",
    "Report",
    "available_metrics",
    "bounds",
    "check_messages",
    "command",
    "counters",
    "find_ncu",
    "import_command",
    "known",
    "load",
    "metric_names",
    "opcode",
    "page_options",
    "ranges",
    "read_raw",
    "read_source",
    "run",
    "source_lines",
]
