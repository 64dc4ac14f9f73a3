"""A debugger of kernels on the emulator: it stops, steps, goes back, and shows variables of all lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.debugger.adapter import Adapter
    from ladder.debugger.debug_info import DebugInfo, Type, Variable
    from ladder.debugger.fragments import Matrix, matrices
    from ladder.debugger.kernel import first_instructions
    from ladder.debugger.prompt import PROMPT, Prompt
    from ladder.debugger.recording import Moment, record, warps_of
    from ladder.debugger.session import Session, Stop
    from ladder.debugger.targets import How, debug_program, debug_stage
    from ladder.debugger.values import NoValue

__getattr__ = door(__name__)
