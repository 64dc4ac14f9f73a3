"""Pictures, one function each, drawn from existing data. matplotlib is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.plots.access import access_picture
    from ladder.plots.buffers import buffers_picture
    from ladder.plots.busy import busy_picture
    from ladder.plots.comparison import comparison_picture
    from ladder.plots.costs import costliest_lines, costs_picture
    from ladder.plots.figure import BLUE, INK, ORANGE, as_svg, check_kind, new_figure, save
    from ladder.plots.first_programs import drawing, drawing_names
    from ladder.plots.fragments import Fragment, fragments_picture
    from ladder.plots.instructions import instructions_picture
    from ladder.plots.layout import layout_picture
    from ladder.plots.mask import mask_picture
    from ladder.plots.memory import Part, memory_picture
    from ladder.plots.placement import placement_picture
    from ladder.plots.ranks import ranks_picture
    from ladder.plots.roofline import roofline_picture
    from ladder.plots.rungs import rungs_picture
    from ladder.plots.softmax import SOFTMAX_TILE, Progress, softmax_picture
    from ladder.plots.speed import speed_picture
    from ladder.plots.svg import Drawing
    from ladder.plots.timeline import clocks_picture, timeline_picture, turns_picture
    from ladder.plots.training import training_picture
    from ladder.plots.walk import Visit, walk_picture

__getattr__ = door(__name__)
