"""Time without a GPU: the least time that each unit of a named GPU needs for the work that was counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.counts.time.bound import Bound, UnitTime, bound_of
    from ladder.counts.time.counted import Counted, count_program, count_stage, work_of_launch
    from ladder.counts.time.estimate import Estimate, estimate_stage
    from ladder.counts.time.gpus import Gpu, gpu_names, load_gpu, require_clock
    from ladder.counts.time.least import least_bytes
    from ladder.counts.time.recorded import Measured, bounded_rungs, counted_work, measured_rows
    from ladder.counts.time.units import UNITS
    from ladder.counts.time.work import LaunchWork

__getattr__ = door(__name__)
