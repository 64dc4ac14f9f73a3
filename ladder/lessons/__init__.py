"""What the lessons are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.lessons.fragments import measure_fragments
    from ladder.lessons.gallery import (
        PICTURES,
        picture,
    )
    from ladder.lessons.walk import measure_walk

_NAMES = {
    "measure_fragments": "fragments",
    "measure_walk": "walk",
    "PICTURES": "gallery",
    "picture": "gallery",
}

__getattr__ = door(__name__, _NAMES)
