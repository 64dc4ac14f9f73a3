"""The CUDA emulator's Python interface: PTX in; results, counts and findings out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.run.emulator.bank_model import box_chunks, operand_chunks, shared_access, shared_passes
    from ladder.run.emulator.faults import Fault, FaultError, PtxError
    from ladder.run.emulator.findings import (
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
    from ladder.run.emulator.forms import FORMS, SENTENCES, retold
    from ladder.run.emulator.launches import (
        COUNTERS,
        Launch,
        Product,
        ProductOperand,
        TensorBox,
        WorstAccess,
    )
    from ladder.run.emulator.modules import InOut, Module
    from ladder.run.emulator.programs import (
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
    from ladder.run.emulator.sessions import MemoryRange, last_fault, merged_memory, session, virtual_gpus
    from ladder.run.emulator.variables import instruction_limit

__getattr__ = door(__name__)
