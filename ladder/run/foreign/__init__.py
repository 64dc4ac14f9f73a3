"""Kernels written in Python: those of Triton and of Numba, run and counted on the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.run.foreign.counted import counting
    from ladder.run.foreign.launched import Counted

__getattr__ = door(__name__)
