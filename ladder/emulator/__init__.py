"""The CUDA emulator's Python interface: PTX in; results, counts and findings out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.emulator.bank_model import box_chunks, operand_chunks, shared_access, shared_passes
    from ladder.emulator.faults import Fault, FaultError, PtxError
    from ladder.emulator.findings import (
        ADVICE,
        MORE_ADVICE,
        ORDER_OF_ADDITIONS,
        Finding,
        Party,
        likeliest_first,
        merged,
        parse_findings,
        split_remarks,
    )
    from ladder.emulator.forms import FORMS, SENTENCES, retold
    from ladder.emulator.launches import (
        COUNTERS,
        Launch,
        Product,
        ProductOperand,
        TensorBox,
        WorstAccess,
    )
    from ladder.emulator.modules import InOut, Module
    from ladder.emulator.programs import (
        CRASHES,
        HOST_LINES,
        ConfinedRun,
        ProgramLaunches,
        ProgramResult,
        emulate,
        run_confined,
        run_counted,
        run_program,
    )
    from ladder.emulator.sessions import MemoryRange, last_fault, merged_memory, session, virtual_gpus
    from ladder.emulator.variables import instruction_limit

__getattr__ = door(__name__)
