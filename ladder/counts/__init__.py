"""Counts beside each line of source; in packages of its own, banks and Nsight Compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.counts.lines import (
        PLACE,
        VALUES,
        Annotated,
        Line,
        Listing,
        Part,
        annotate,
        by_kernel_line,
        line_table,
    )

__getattr__ = door(__name__)
