"""Pictures, one function each, drawn from existing data. matplotlib is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.show.plots.access import access_picture
    from ladder.show.plots.bound import bound_picture
    from ladder.show.plots.buffers import buffers_picture
    from ladder.show.plots.busy import busy_picture
    from ladder.show.plots.comparison import comparison_picture
    from ladder.show.plots.costs import costliest_lines, costs_picture
    from ladder.show.plots.figure import BLUE, INK, ORANGE, as_svg, check_kind, new_figure, save
    from ladder.show.plots.first_programs import drawing, drawing_names
    from ladder.show.plots.fragments import Fragment, fragments_picture
    from ladder.show.plots.instructions import instructions_picture
    from ladder.show.plots.layout import layout_picture
    from ladder.show.plots.mask import mask_picture
    from ladder.show.plots.memory import Part, memory_picture
    from ladder.show.plots.placement import placement_picture
    from ladder.show.plots.ranks import ranks_picture
    from ladder.show.plots.roofline import roofline_picture
    from ladder.show.plots.rungs import rungs_picture
    from ladder.show.plots.softmax import SOFTMAX_TILE, Progress, softmax_picture
    from ladder.show.plots.speed import speed_picture
    from ladder.show.plots.svg import Drawing
    from ladder.show.plots.timeline import clocks_picture, timeline_picture, turns_picture
    from ladder.show.plots.training import training_picture
    from ladder.show.plots.waits import waits_picture
    from ladder.show.plots.walk import Visit, walk_picture

__getattr__ = door(__name__)
