"""Attention computed by a rung: called like torch's own, as a torch operator, and in a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.functional.calls import attention
    from ladder.functional.forward import prepared
    from ladder.functional.hstu import hstu_attention
    from ladder.functional.layers import HSTULayer

__getattr__ = door(__name__)
