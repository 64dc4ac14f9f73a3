"""The command ``ladder``, one module per subcommand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.cli.kept import main

__getattr__ = door(__name__)
