"""The estimate: a model of one multiprocessor replays the warps of a launch's first blocks in simulated time.

The emulator executes the blocks that are on one multiprocessor at a time, and records what each warp does.
``emulator/timing`` replays this in ptxas's order of instructions, with the parameters of the GPU's file.
None of them is fitted to a kernel. Blocks that follow each other are replayed up to four in a row; further
ones take as long as the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ladder.counts.time.gpus import Gpu, require_clock
from ladder.counts.time.least import kept_pairs, least_bytes
from ladder.counts.time.scaling import QUERIES
from ladder.counts.time.work import Place
from ladder.errors import InvalidProblem, LadderError
from ladder.operations import AnyProblem, Problem, operation_of
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
    what_if: Mapping[str, float] = field(default_factory=dict)

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
        part, share, uncertainty = _part(problem)
        grids, items = self._grids(problem, self.gpu.multiprocessors), self._items(problem)
        part_items, part_grids = self._items(part), self._grids(part, 1)
        blocks = [math.ceil(grid / self.gpu.multiprocessors) for grid in grids]
        run = self._run(part, blocks)
        launches = []
        for number, (launch, timed) in enumerate(zip(run.launches, run.timed, strict=True)):
            if timed["unknown"]:
                raise LadderError(
                    f"no estimate for {launch.kernel}: the model does not know {timed['unknown']}",
                    "Without --experimental, `ladder time` gives the bound.",
                )
            if (
                grids[number] < items[number]
            ):  # persistent blocks: one multiprocessor has done the part's items
                rounds = math.ceil(items[number] / self.gpu.multiprocessors)
                cycles = timed["cycles"] * rounds * part_grids[number] / part_items[number]
            else:
                cycles = _in_a_row(timed, blocks[number])
            launches.append(_launch_estimate(launch, timed, cycles * share))
            if blocks[number] > timed["blocks"] or part != problem:
                uncertainty = max(uncertainty, _MODEL + _EXTRAPOLATION)
        read, written = least_bytes(problem)
        l2 = self.gpu.l2_mb * 2**20
        through = max(read - l2, 0) + max(written - l2, 0)
        return Estimate(
            self.gpu, clock, tuple(launches), uncertainty, through / self.gpu.dram_gb_per_s * 1e-6
        )

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

    def _grids(self, problem: AnyProblem, multiprocessors: int) -> list[int]:
        return [math.prod(one.grid) for one in self._shapes(problem, multiprocessors=multiprocessors)]

    def _items(self, problem: AnyProblem) -> list[int]:
        """With a multiprocessor per block, persistent kernels start a block per work item."""
        shapes = self._shapes(problem, multiprocessors=0, first_blocks=1)
        return [math.prod(one.grid) for one in shapes]

    def _shapes(self, problem: AnyProblem, **treatment: int) -> Sequence[Launch]:
        from ladder.run.backends import Treatment

        if isinstance(problem, Problem):
            problem = replace(problem, inputs="equal")  # quickly drawn
        inputs = operation_of(problem).make_inputs(problem)
        chosen = Treatment(skip_kernels=True, **treatment)
        return self.runner.run(problem, inputs, treatment=chosen).launches


def _part(problem: AnyProblem) -> tuple[AnyProblem, float, float]:
    """A problem whose blocks do what the whole problem's do, the share of its time, and the uncertainty.

    Under a causal mask it has no mask, and the time counts by the share of pairs that the mask keeps.
    """
    if type(problem) is not Problem:
        if problem.flops > _MOST:
            raise InvalidProblem(
                f"{problem} is too large to be emulated, and no smaller problem is known to stand for it",
                "Choose smaller sizes.",
            )
        return problem, 1.0, _MODEL
    one = replace(
        problem,
        batch=1,
        heads=1,
        kv_heads=None,
        q_len=min(QUERIES, problem.q_len),
        is_causal=False,
    )
    if not problem.is_causal:
        return one, 1.0, _MODEL
    share = kept_pairs(problem) / (problem.q_len * problem.kv_len)
    return one, share, _MODEL + _MASK


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
