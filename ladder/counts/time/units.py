"""The units of a GPU that a bound looks at, and what is counted for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """A unit of a multiprocessor, or of the GPU.

    ``counted`` is what its rate counts. ``source`` says where the count comes from: ``PTX``, instructions
    that the emulator executed; ``accesses``, what its model of memory counted; ``problem``, tensors' sizes.
    """

    name: str
    counted: str
    source: str


UNITS: tuple[Unit, ...] = (
    Unit("tensor cores", "operations", "PTX"),
    Unit("exponential unit", "results", "PTX"),
    Unit("FMA", "results", "PTX"),
    Unit("minimum, maximum", "results", "PTX"),
    Unit("issue", "instructions", "PTX"),
    Unit("shared memory and L1", "wavefronts", "accesses"),
    Unit("L2 to SM", "bytes", "accesses"),
    Unit("SM to L2", "bytes", "accesses"),
    Unit("DRAM", "bytes", "problem"),
)

#: The rates that are named by themselves, and the unit that each belongs to; those of the tensor cores are
#: named by dtype, see :meth:`ladder.counts.time.Gpu.rate`.
UNIT_OF_RATE = {
    "exponential": "exponential unit",
    "fma": "FMA",
    "minimum": "minimum, maximum",
    "issue": "issue",
    "shared": "shared memory and L1",
    "shuffle": "shared memory and L1",
    "l1": "shared memory and L1",
    "l2_read": "L2 to SM",
    "l2_write": "SM to L2",
}


def unit_of(rate: str) -> str:
    """The name of the unit that does the work of this kind."""
    return UNIT_OF_RATE.get(rate, "tensor cores")
