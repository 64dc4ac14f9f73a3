"""Attention by a rung of the ladder, called as torch's own, and as a torch operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.functional.calls import (
        attention,
    )

_NAMES = {
    "attention": "calls",
}

__getattr__ = door(__name__, _NAMES)
