"""The times that were measured on GPUs, with what is known of each run: its operations, bytes and clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ladder.counts.time.bound import Bound, bound_of
from ladder.counts.time.gpus import Gpu, load_gpu
from ladder.counts.time.least import least_bytes, least_products, needed_operations
from ladder.counts.time.work import LaunchWork
from ladder.operations import DTYPES, Problem
from ladder.stages import of_today

#: Columns with a time, its unit in ms, and the column with the speed of the same launches.
_TIMES = (
    ("burst_median_ms", 1.0, "tflops_burst"),
    ("single_median_ms", 1.0, "tflops_single"),
    ("burst_ms", 1.0, "tflops_burst"),
    ("time_ms", 1.0, "tflops"),
    ("call_us", 1e-3, "tflops"),
    ("time_us", 1e-3, ""),
    ("gpu__time_duration.sum", 1e3, ""),
)
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_MMA = "sm__inst_executed_pipe_tensor_op_hmma"
#: Sectors of 32 bytes that one multiprocessor reads from the L2, and those that it writes.
_READ = ("l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum",)
_WRITTEN = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum",
)


@dataclass(frozen=True)
class Measured:
    """A measured time of ``contender``, a rung by its name of today or anything else.

    ``clock_mhz`` is the SM's clock in that launch, None if it is not known: the column of that name is of
    another half second, in which the GPU was warmer and often slower. ``operations`` and ``read_bytes`` are
    the least that the problem takes; ``counters`` are the run's own by Nsight Compute, as work by kind.
    ``problem`` is that of a rung of attention without options.
    """

    file: str
    contender: str
    gpu: str
    ms: float
    clock_mhz: float | None
    dtype: str | None
    operations: float = 0
    read_bytes: float = 0
    counters: Mapping[str, float] = field(default_factory=dict)
    blocks: int = 0
    problem: Problem | None = None

    def bound(self) -> Bound:
        """The least time that is known without emulating anything."""
        gpu = load_gpu(self.gpu)
        work = least_products(gpu, self.operations, self.dtype)
        if self.counters:
            work = LaunchWork(self.contender, (self.blocks, 1, 1), (1, 1, 1), self.counters)
        return bound_of(gpu, [work], clock_mhz=self.clock_mhz, read_bytes=self.read_bytes)


def measured_rows(results: Path, files: str = "h[12]00/*.csv") -> Iterator[Measured]:
    """Every time in these files of ``results`` whose run is known well enough to be bounded. Wrong results
    are left out: such a kernel may have left out work.
    """
    import pandas as pd

    for path in sorted(results.glob(files)):
        rows = pd.read_csv(path, low_memory=False)
        column = next((name for name in ("contender", "stage") if name in rows), "")
        if not column or "gpu" not in rows:
            continue
        names: dict[Any, str] = {}
        if "date" in rows:
            names = of_today(rows, column)[column].to_dict()
        for index, row in zip(rows.index, rows.to_dict("records"), strict=True):
            known = {str(name): value for name, value in row.items() if value == value}  # not NaN
            yield from _of_row(known, f"{path.parent.name}/{path.name}", names.get(index))


def bounded_rungs(results: Path, files: str = "h[12]00/*.csv") -> Iterator[tuple[Measured, Bound]]:
    """The measured times of rungs whose work was counted, and their bounds."""
    works = counted_work(results)
    for row in measured_rows(results, files):
        if row.problem and (work := works.get((row.contender, row.problem.text))):
            read, written = least_bytes(row.problem)
            yield (
                row,
                bound_of(
                    load_gpu(row.gpu), [work], clock_mhz=row.clock_mhz, read_bytes=read, written_bytes=written
                ),
            )


def counted_work(results: Path) -> dict[tuple[str, str], LaunchWork]:
    """What the emulator counted for measured problems, by rung and the problem's text: ``work.csv``."""
    import pandas as pd

    found = {}
    for _, row in pd.read_csv(results / "work.csv").iterrows():
        facts = {str(name): value for name, value in row.dropna().items()}
        stage, problem = facts.pop("stage"), facts.pop("problem")
        x, y, z = (int(size) for size in facts.pop("grid").split("x"))
        items: dict[str, tuple[int, float]] = {}
        for text in facts.pop("items", "").split("; "):
            kind, _, equal = text.partition(": ")
            count, _, amount = equal.partition(" x ")
            if kind:
                items[kind] = int(count), float(amount)
        found[stage, problem] = LaunchWork(stage, (x, y, z), (1, 1, 1), facts, {}, 1, items)
    return found


def _of_row(row: Mapping[str, Any], file: str, today: str | None) -> Iterator[Measured]:
    is_right = str(row.get("passed", True)) == "True"
    # Speeds of HSTU count the pairs of a causal mask, whatever the mask.
    counts_its_pairs = row.get("mask", "causal") == "causal"
    if not is_right or not counts_its_pairs:
        return
    contender = today or str(row.get("contender", row.get("stage")))
    gpu = "h200" if "H200" in row["gpu"] else "h100"
    facts: dict[str, Any] = {
        "file": file,
        "contender": contender,
        "gpu": gpu,
        "dtype": row["dtype"] if row.get("dtype") in DTYPES else None,
        "clock_mhz": _clock_by_counters(row, load_gpu(gpu)),
        "problem": _problem(row) if today else None,
    }
    for column, unit, speed in _TIMES:
        if column not in row:
            continue
        ms = float(row[column]) * unit
        if column.startswith("gpu__time"):
            counters, problem = _counters(row), facts["problem"]
            if row.get("launches", 1) == 1 and (counters or problem):
                least = needed_operations(problem) if problem else 0
                blocks = _blocks(row["grid"])
                yield Measured(ms=ms, operations=least, counters=counters, blocks=blocks, **facts)
        elif speed in row:
            yield Measured(ms=ms, operations=float(row[speed]) * 1e9 * ms, **facts)
        elif "cache_bytes" in row or "tb_per_s" in row:
            read = float(row.get("cache_bytes", row.get("tb_per_s", 0.0) * 1e9 * ms))
            yield Measured(ms=ms, read_bytes=read, **facts)
        elif "gb_per_s" in row:
            yield Measured(ms=ms, read_bytes=float(row["gb_per_s"]) * 1e6 * ms, **facts)


def _problem(row: Mapping[str, Any]) -> Problem | None:
    """The problem of a row of plain attention."""
    names = ("B", "H", "N", "M", "d", "Hkv")
    options = any(row.get(name) not in (None, False) for name in ("window", "softcap", "sinks", "lengths"))
    if (
        not row.keys() >= {*names}
        or options
        or row.get("pass", "forward") != "forward"
        or row.get("dtype") not in DTYPES
    ):
        return None
    batch, heads, queries, keys, head_dim, kv_heads = (int(row[name]) for name in names)
    kv = None if kv_heads == heads else kv_heads
    return Problem(batch, heads, queries, keys, head_dim, kv, row["dtype"], str(row["causal"]) == "True")


def _counters(row: Mapping[str, Any]) -> dict[str, float]:
    """The work that Nsight Compute counted: wavefronts, sectors, and the products of mma.sync."""
    found = {"shared": sum(float(row.get(_WAVEFRONTS.format(op), 0)) for op in ("ld", "st", "gmma"))}
    found["l2_read"] = 32 * sum(float(row.get(name, 0)) for name in _READ)
    found["l2_write"] = 32 * sum(float(row.get(name, 0)) for name in _WRITTEN)
    if not row.get("smsp__sass_inst_executed_op_shared_gmma.sum", 1) and row.get("dtype") != "f32":
        products = float(row.get(f"{_MMA}.sum", 0)) - float(row.get(f"{_MMA}_type_hfma2.sum", 0))
        found["mma f32 f16"] = 2 * 16 * 8 * 16 * products
    return {kind: amount for kind, amount in found.items() if amount}


def _clock_by_counters(row: Mapping[str, Any], gpu: Gpu) -> float | None:
    """The SM's clock in MHz, by the products that were executed and the share of the time that they could
    have taken: the pipe takes one every other cycle on a quarter of an SM. Shares have two decimals; of the
    clocks that round to them, the highest.
    """
    share = float(row.get(f"{_MMA}.avg.pct_of_peak_sustained_active", 0))
    active = float(row.get("sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 0))
    if share < 1:
        return None
    cycles = float(row[f"{_MMA}.sum"]) / gpu.multiprocessors / 2 / ((share - 0.005) / 100)
    return cycles / ((active - 0.005) / 100) / float(row["gpu__time_duration.sum"]) * 1e-6


def _blocks(grid: str) -> int:
    blocks = 1
    for size in grid.strip("()").split(","):
        blocks *= int(size)
    return blocks
