"""The estimate: a model of one multiprocessor replays the warps of a launch's first blocks in simulated time.

The emulator executes the blocks that are on one multiprocessor at a time, and records what each warp does.
``emulator/timing`` replays this in ptxas's order of instructions, with the parameters of the GPU's file.
None of them is fitted to a kernel. Blocks that follow each other are replayed up to four in a row; further
ones take as long as the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ladder.counts.time.gpus import Gpu, require_clock
from ladder.counts.time.least import kept_pairs, least_bytes
from ladder.counts.time.scaling import QUERIES, too_large
from ladder.counts.time.work import Place
from ladder.errors import LadderError
from ladder.operations import AnyProblem, BackwardProblem, Problem, operation_of
from ladder.stages import Stage

if TYPE_CHECKING:
    from ladder.run.backends import Execution, Runner
    from ladder.run.emulator import Launch

#: How far a time may be off, as a share of it: by the model alone, and by what is put together from parts.
_MODEL, _EXTRAPOLATION, _MASK = 0.15, 0.05, 0.15


@dataclass(frozen=True)
class LaunchEstimate:
    """One launch: cycles in all, and the replayed waits of its warps.

    ``stalls`` has cycles that warps spent, by kernel line and Nsight Compute's name of the reason;
    ``waits`` are (warp, begin, end, reason, place) of the first block's warps, in cycles.
    """

    kernel: str
    cycles: float
    resident: int
    registers: int
    stalls: Mapping[tuple[Place, str], float]
    waits: Sequence[tuple[int, float, float, str, Place]] = ()
    replayed_cycles: float = 0


@dataclass(frozen=True)
class Estimate:
    """The time of launches that run one after another, at a clock."""

    gpu: Gpu
    clock_mhz: float
    launches: tuple[LaunchEstimate, ...]
    uncertainty: float
    dram_ms: float = 0.0

    @property
    def ms(self) -> float:
        return max(sum(one.cycles for one in self.launches) / self.clock_mhz * 1e-3, self.dram_ms)

    @property
    def interval_ms(self) -> tuple[float, float]:
        """Between these the time should be."""
        return self.ms / (1 + self.uncertainty), self.ms * (1 + self.uncertainty)

    def reasons(self) -> dict[str, float]:
        """The share of the warps' time by reason, the largest first; ``selected`` is issuing."""
        return _shares({reason: 0.0 for one in self.launches for _, reason in one.stalls}, self._by_reason())

    def lines(self) -> dict[tuple[Place, str], float]:
        """The same by kernel line and reason, without issuing."""
        found: dict[tuple[Place, str], float] = {}
        for one in self.launches:
            for key, cycles in one.stalls.items():
                if key[1] != "selected":
                    found[key] = found.get(key, 0) + cycles
        return _shares({}, found)

    def _by_reason(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for one in self.launches:
            for (_, reason), cycles in one.stalls.items():
                found[reason] = found.get(reason, 0) + cycles
        return found


def _shares(zero: Mapping[Any, float], found: Mapping[Any, float]) -> dict[Any, float]:
    total = sum(found.values()) or 1.0
    return dict(
        sorted(((key, value / total) for key, value in {**zero, **found}.items()), key=lambda one: -one[1])
    )


def estimate_stage(
    stage: Stage,
    problem: AnyProblem,
    gpu: Gpu,
    *,
    options: Mapping[str, str] | None = None,
    clock_mhz: float | None = None,
    changes: Mapping[str, float] | None = None,
) -> Estimate:
    """The estimated time of a stage's launches, at the GPU's highest clock unless ``clock_mhz`` is given.
    ``changes`` replaces parameters of the model: what if.

    Raises :class:`LadderError` where the model has no time, and says why, :class:`UnsupportedProblem` if the
    stage does not take the problem or cannot run on the GPU, :class:`BuildError`, :class:`ExecutionError`.
    """
    from ladder.compile import TimingTarget, build
    from ladder.run.backends import EmulatorBackend

    clock = require_clock(gpu.clock_mhz if clock_mhz is None else clock_mhz)
    if not gpu.model:
        raise LadderError(
            f"there is no estimate for the {gpu.name}: its file has no parameters of the model",
            "python -m tools.bench latencies measures them on a GPU; `ladder time` gives the bound.",
        )
    if unknown := sorted(set(changes or {}) - set(gpu.model)):
        raise LadderError(
            f"the model has no parameter {unknown[0]!r}", f"Its parameters are {', '.join(gpu.model)}."
        )
    problem = stage.accept(problem)
    target = TimingTarget(gpu.arch_of(stage))
    extension = build(stage, target, stage.chosen_options(options or {}), only=problem)
    with EmulatorBackend().runner(extension, target) as runner:
        return _Estimating(runner, gpu, {**gpu.model, **(changes or {})}).estimate(problem, clock)


@dataclass(frozen=True)
class _Estimating:
    runner: Runner
    gpu: Gpu
    model: Mapping[str, float]

    def estimate(self, problem: AnyProblem, clock: float) -> Estimate:
        parts = _parts(problem)
        items, part_items = self._items(parts.head), self._items(parts.part)
        grids = self._grids(parts.part)
        is_persistent = [grid < items for grid, items in zip(grids, part_items, strict=True)]
        # The most work items that a multiprocessor has.
        most = [math.ceil(parts.heads * count / self.gpu.multiprocessors) for count in items]
        blocks = [1 if one else count for one, count in zip(is_persistent, most, strict=True)]
        run = self._run(parts.part, blocks)
        launches, uncertainty = [], parts.uncertainty
        for number, (launch, timed) in enumerate(zip(run.launches, run.timed, strict=True)):
            if timed["unknown"]:
                raise LadderError(
                    f"no estimate for {launch.kernel}: the model does not know {timed['unknown']}",
                    "Without --experimental, `ladder time` gives the bound.",
                )
            if is_persistent[number]:  # one multiprocessor has done all of the part's items
                cycles = timed["cycles"] * most[number] * grids[number] / part_items[number]
            else:
                cycles = _in_a_row(timed, most[number])
            launches.append(_launch_estimate(launch, timed, cycles * parts.share))
            if blocks[number] > timed["blocks"] or parts.part != problem:
                uncertainty = max(uncertainty, _MODEL + _EXTRAPOLATION)
        read, written = least_bytes(problem)
        l2 = self.gpu.l2_mb * 2**20
        dram_ms = (max(read - l2, 0) + max(written - l2, 0)) / self.gpu.dram_gb_per_s * 1e-6
        return Estimate(self.gpu, clock, tuple(launches), uncertainty, dram_ms)

    def _run(self, part: AnyProblem, blocks: Sequence[int]) -> Execution:
        from ladder.run.backends import Treatment

        timing = tuple({**self.model, "dram_share": self._dram_share(part)}.items())
        treatment = Treatment(timing=timing, blocks=tuple(blocks), multiprocessors=1)
        inputs = operation_of(part).make_inputs(part)
        return self.runner.run(part, inputs, treatment=treatment, details=True)

    def _dram_share(self, part: AnyProblem) -> float:
        """Of what blocks read, the share that no other block has read before: all of a cache of keys and
        values, next to nothing where the blocks of a head share its keys.
        """
        return 0.0 if isinstance(part, Problem) or not hasattr(part, "cache_bytes") else 1.0

    def _grids(self, problem: AnyProblem) -> list[int]:
        """With one multiprocessor, of which persistent kernels make one block's worth."""
        return [math.prod(one.grid) for one in self._shapes(problem, multiprocessors=1)]

    def _items(self, problem: AnyProblem) -> list[int]:
        """With a multiprocessor per block, persistent kernels start a block per work item."""
        shapes = self._shapes(problem, multiprocessors=0, first_blocks=1)
        return [math.prod(one.grid) for one in shapes]

    def _shapes(self, problem: AnyProblem, **treatment: Any) -> Sequence[Launch]:
        from ladder.run.backends import Treatment

        if isinstance(problem, Problem):
            problem = replace(problem, inputs="equal")  # quickly drawn
        inputs = operation_of(problem).make_inputs(problem)
        chosen = Treatment(skip_kernels=True, **treatment)
        return self.runner.run(problem, inputs, treatment=chosen).launches


@dataclass(frozen=True)
class _Parts:
    """What stands for a problem: ``heads`` times ``head``, whose blocks do what those of ``part``
    do; the share of the time that a mask leaves; and the uncertainty.
    """

    head: AnyProblem
    part: AnyProblem
    heads: int
    share: float = 1.0
    uncertainty: float = _MODEL


def _parts(problem: AnyProblem) -> _Parts:
    """Under a causal mask the part has none, and its time counts by the share of pairs that are kept."""
    if not isinstance(problem, Problem):
        if problem.flops > _MOST:
            raise too_large(problem)
        return _Parts(problem, problem, 1)
    if problem.features - {"strided"}:
        raise too_large(problem)
    head = replace(problem, batch=1, heads=1, kv_heads=None, is_causal=False)
    # Blocks of the forward pass have some queries and loop over all keys, those of gradients the other way.
    few = "kv_len" if isinstance(problem, BackwardProblem) else "q_len"
    part = replace(head, **{few: min(QUERIES, getattr(problem, few))})
    heads = problem.batch * problem.heads
    if not problem.is_causal:
        return _Parts(head, part, heads)
    share = kept_pairs(problem) / (problem.q_len * problem.kv_len)
    return _Parts(head, part, heads, share, _MODEL + _MASK)


#: Problems of other operations with more operations take too long.
_MOST = 2**33


def _in_a_row(timed: Mapping[str, Any], blocks: int) -> float:
    """The cycles of ``blocks`` blocks on one multiprocessor, of which some were replayed."""
    cycles, replayed, resident = timed["cycles"], timed["blocks"], timed["resident"]
    if blocks <= replayed:
        return float(cycles)
    per_block = (cycles - timed["first_cycles"]) / max(replayed - resident, 1)
    return float(cycles + per_block * (blocks - replayed))


def _launch_estimate(launch: Launch, timed: Mapping[str, Any], cycles: float) -> LaunchEstimate:
    frame = launch.instructions()
    places = list(zip(frame["kernel_file"], frame["own_line"], strict=True))
    stalls: dict[tuple[Place, str], float] = {}
    for index, reason, spent in timed["stalls"]:
        key = places[index], reason
        stalls[key] = stalls.get(key, 0) + spent
    waits = [(warp, begin, end, reason, places[index]) for warp, begin, end, reason, index in timed["waits"]]
    return LaunchEstimate(
        launch.kernel, cycles, timed["resident"], timed["registers"], stalls, waits, timed["cycles"]
    )
