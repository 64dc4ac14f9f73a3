"""The bound: the least time that each unit needs for its work, of which the largest bounds the kernel.

Every unit is taken to work all the time, on all multiprocessors that have blocks, and beside the others. So
no run is faster, if its clock is not higher than the one that the bound is for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ladder.counts.time.gpus import Gpu, require_clock
from ladder.counts.time.units import UNITS, Unit, unit_of
from ladder.counts.time.work import LaunchWork, Place, added
from ladder.errors import LadderError


@dataclass(frozen=True)
class UnitTime:
    """The least time of one unit, in ms, for ``amounts`` of work by kind."""

    unit: Unit
    amounts: Mapping[str, float]
    ms: float

    @property
    def amount(self) -> float:
        return sum(self.amounts.values())


@dataclass(frozen=True)
class LaunchBound:
    """The bound of one launch."""

    work: LaunchWork
    units: tuple[UnitTime, ...]

    @property
    def bounding(self) -> UnitTime:
        return max(self.units, key=lambda one: one.ms)

    @property
    def ms(self) -> float:
        return self.bounding.ms


@dataclass(frozen=True)
class Bound:
    """The bound of launches that run one after another."""

    gpu: Gpu
    clock_mhz: float
    launches: tuple[LaunchBound, ...]
    dram: UnitTime | None = None

    @property
    def units(self) -> tuple[UnitTime, ...]:
        """The units that have work, each with the sum over all launches."""
        found = []
        for unit in UNITS:
            same = [one for launch in self.launches for one in launch.units if one.unit == unit]
            if same:
                found.append(
                    UnitTime(unit, added((one.amounts, 1) for one in same), sum(one.ms for one in same))
                )
        return (*found, *([self.dram] if self.dram else []))

    @property
    def ms(self) -> float:
        of_launches = sum(launch.ms for launch in self.launches)
        return max(of_launches, self.dram.ms if self.dram else 0.0)

    @property
    def bounding(self) -> Unit:
        """The unit that bounds; that of the longest launch, if there are several."""
        if self.dram and self.dram.ms >= self.ms:
            return self.dram.unit
        return max(self.launches, key=lambda launch: launch.ms).bounding.unit

    def shares(self) -> dict[Place, float]:
        """The share that each kernel line has of the work of the unit that bounds, the largest first."""
        found: dict[Place, float] = {}
        for launch in self.launches:
            for place, amounts in launch.work.places.items():
                times = unit_times(self.gpu, self.clock_mhz, replace(launch.work, amounts=amounts, items={}))
                ms = sum(one.ms for one in times if one.unit == self.bounding)
                found[place] = found.get(place, 0) + ms
        total = sum(found.values())
        ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return {place: ms / total for place, ms in ordered if ms > 0}


def bound_of(
    gpu: Gpu,
    launches: Sequence[LaunchWork],
    *,
    clock_mhz: float | None = None,
    read_bytes: float = 0,
    written_bytes: float = 0,
) -> Bound:
    """The bound of these launches on this GPU, at its highest clock unless ``clock_mhz`` is given.

    ``read_bytes`` and ``written_bytes`` are the distinct bytes that must be read and written; of each, what
    fits into the L2 may stay there from one run to the next, so it needs no DRAM.

    Raises :class:`LadderError` if there are no launches, or the clock is not positive.
    """
    if not launches:
        raise LadderError("the program has launched no kernel, so there is nothing to bound")
    clock = require_clock(gpu.clock_mhz if clock_mhz is None else clock_mhz)
    bounds = tuple(LaunchBound(work, unit_times(gpu, clock, work)) for work in launches)
    return Bound(gpu, clock, bounds, _dram(gpu, read_bytes, written_bytes))


def unit_times(gpu: Gpu, clock_mhz: float, work: LaunchWork) -> tuple[UnitTime, ...]:
    """The least time of each unit; a kind of work for which the GPU has no rate takes no time."""
    by_unit: dict[str, dict[str, float]] = {}
    cycles: dict[str, float] = {}
    for kind in dict.fromkeys(["issue", *work.amounts]):
        unit, rate = unit_of(kind), gpu.rate(kind)
        by_unit.setdefault(unit, {})[kind] = work.amounts.get(kind, 0)
        least = _most_per_multiprocessor(gpu, work, kind) / rate.per_clock if rate else 0
        cycles[unit] = cycles.get(unit, 0) + least
    return tuple(
        UnitTime(unit, by_unit[unit.name], cycles[unit.name] / clock_mhz * 1e-3)
        for unit in UNITS
        if unit.name in by_unit
    )


def _most_per_multiprocessor(gpu: Gpu, work: LaunchWork, kind: str) -> float:
    """What the multiprocessor with the most work of this kind has at least: the mean of those that can have
    blocks, or the next whole number of items.
    """
    mean = work.amounts.get(kind, 0) / min(work.blocks, gpu.multiprocessors)
    count, amount = work.items.get(kind, (0, 0.0))
    return max(mean, math.ceil(count / gpu.multiprocessors) * amount)


def _dram(gpu: Gpu, read_bytes: float, written_bytes: float) -> UnitTime | None:
    if not read_bytes + written_bytes:
        return None
    l2 = gpu.l2_mb * 2**20
    through = {"read": max(read_bytes - l2, 0.0), "written": max(written_bytes - l2, 0.0)}
    ms = sum(through.values()) / gpu.dram_gb_per_s * 1e-6
    return UnitTime(next(unit for unit in UNITS if unit.name == "DRAM"), through, ms)
