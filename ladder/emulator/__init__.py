"""The CUDA emulator's Python interface: PTX in; results, counts and findings out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.emulator.counters import (
        COUNTERS,
    )
    from ladder.emulator.findings import (
        ADVICE,
        Finding,
        Party,
        likeliest_first,
        merged,
        split_remarks,
    )
    from ladder.emulator.programs import (
        CRASHES,
        ProgramLaunches,
        ProgramResult,
        emulate,
        run_program,
    )
    from ladder.emulator.sessions import (
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

_NAMES = {
    "ADVICE": "findings",
    "COUNTERS": "counters",
    "CRASHES": "programs",
    "FaultError": "sessions",
    "Finding": "findings",
    "InOut": "sessions",
    "Launch": "sessions",
    "MemoryRange": "sessions",
    "Module": "sessions",
    "Party": "findings",
    "ProgramLaunches": "programs",
    "ProgramResult": "programs",
    "Product": "sessions",
    "ProductOperand": "sessions",
    "PtxError": "sessions",
    "TensorBox": "sessions",
    "WorstAccess": "sessions",
    "box_chunks": "sessions",
    "emulate": "programs",
    "instruction_limit": "variables",
    "last_fault": "sessions",
    "likeliest_first": "findings",
    "merged": "findings",
    "merged_memory": "sessions",
    "operand_chunks": "sessions",
    "run_program": "programs",
    "session": "sessions",
    "shared_access": "sessions",
    "shared_passes": "sessions",
    "split_remarks": "findings",
    "virtual_gpus": "sessions",
}

__getattr__ = door(__name__, _NAMES)
