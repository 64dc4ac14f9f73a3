"""The command ``ladder``, a module a command."""

from __future__ import annotations

from ladder.cli.program import main

__all__ = ["main"]
