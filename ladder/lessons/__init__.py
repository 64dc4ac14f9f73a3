"""Functions that the lessons' notebooks call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.lessons.fragments import measure_fragments
    from ladder.lessons.gallery import PICTURES, picture
    from ladder.lessons.listing import diff, line_of, source
    from ladder.lessons.magics import load_ipython_extension
    from ladder.lessons.predictions import after, predict
    from ladder.lessons.tables import costs, counts, measured, measured_speeds, text_table, times
    from ladder.lessons.walk import measure_walk

__getattr__ = door(__name__)
