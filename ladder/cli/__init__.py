"""The command ``ladder``, one module per subcommand."""

from __future__ import annotations

from ladder.cli.program import main

__all__ = ["main"]
