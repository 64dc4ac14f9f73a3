"""Live pages with a compiler: sources that readers edit come back as PTX, which their browsers run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.course.serving.compiler import Compiler, Kernel, Limits, without_folders
    from ladder.course.serving.server import COMPILER_FILE, PageServer
    from ladder.course.serving.stepping import debugging_tables

__getattr__ = door(__name__)
