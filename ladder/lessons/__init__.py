"""Functions that the lessons' notebooks call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.lessons.fragments import measure_fragments
    from ladder.lessons.gallery import (
        PICTURES,
        picture,
    )
    from ladder.lessons.listing import (
        diff,
        line_of,
        source,
    )
    from ladder.lessons.magics import load_ipython_extension
    from ladder.lessons.predictions import (
        after,
        predict,
    )
    from ladder.lessons.tables import (
        costs,
        counts,
        measured,
        measured_speeds,
        text_table,
        times,
    )
    from ladder.lessons.walk import measure_walk

_NAMES = {
    "PICTURES": "gallery",
    "after": "predictions",
    "costs": "tables",
    "counts": "tables",
    "diff": "listing",
    "line_of": "listing",
    "load_ipython_extension": "magics",
    "measure_fragments": "fragments",
    "measure_walk": "walk",
    "measured": "tables",
    "measured_speeds": "tables",
    "picture": "gallery",
    "predict": "predictions",
    "source": "listing",
    "text_table": "tables",
    "times": "tables",
}

__getattr__ = door(__name__, _NAMES)
