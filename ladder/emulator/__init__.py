"""The CUDA emulator's Python interface: PTX in; results, counts and findings out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
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
    from ladder.emulator.sessions import (
        COUNTERS,
        Fault,
        FaultError,
        InOut,
        Launch,
        MemoryRange,
        Module,
        Product,
        ProductOperand,
        PtxError,
        TensorBox,
        WorstAccess,
        box_chunks,
        last_fault,
        merged_memory,
        operand_chunks,
        session,
        shared_access,
        shared_passes,
        virtual_gpus,
    )
    from ladder.emulator.variables import instruction_limit

__getattr__ = door(__name__)
