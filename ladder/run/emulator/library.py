"""The emulator's library, loaded once the environment variables that it reads are valid."""

from __future__ import annotations

from ladder.run.emulator import variables

variables.validate()
from ladder import _emulator as library  # noqa: E402

__all__ = ["library"]
