"""Functions that the lessons' notebooks call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.course.lessons.changed import changed_copy
    from ladder.course.lessons.debugging import debug
    from ladder.course.lessons.fragments import measure_fragments
    from ladder.course.lessons.gallery import PICTURES, picture
    from ladder.course.lessons.listing import diff, line_of, source
    from ladder.course.lessons.magics import load_ipython_extension, require_solved
    from ladder.course.lessons.predictions import after, predict
    from ladder.course.lessons.recorded import (
        busy,
        measured,
        measured_hstu,
        measured_hstu_peers,
        measured_options,
        measured_speeds,
        timeline,
        turns,
    )
    from ladder.course.lessons.tables import costs, counts, text_table, times
    from ladder.course.lessons.walk import measure_walk
    from ladder.show.plots import drawing

__getattr__ = door(__name__)
