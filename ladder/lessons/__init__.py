"""Functions that the lessons' notebooks call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.lessons.changed import changed_copy
    from ladder.lessons.debugging import debug
    from ladder.lessons.fragments import measure_fragments
    from ladder.lessons.gallery import PICTURES, picture
    from ladder.lessons.listing import diff, line_of, source
    from ladder.lessons.magics import load_ipython_extension, require_solved
    from ladder.lessons.predictions import after, predict
    from ladder.lessons.recorded import (
        busy,
        measured,
        measured_hstu,
        measured_hstu_peers,
        measured_options,
        measured_speeds,
        timeline,
        turns,
    )
    from ladder.lessons.tables import costs, counts, text_table, times
    from ladder.lessons.walk import measure_walk
    from ladder.plots import drawing

__getattr__ = door(__name__)
