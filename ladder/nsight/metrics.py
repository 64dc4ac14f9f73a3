"""Nsight Compute's names for what is counted: the table's columns, what can bound a kernel, why warps wait.

The names are documented in "Nsight Compute, Profiling Guide, Metrics Reference" and by ``ncu
--query-metrics``; which of them count what the emulator counts was settled by measurement
(``results/measure_counters.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pandas as pd

#: The table's columns and ncu's names for them, best first: a column is the sum over the first alternative
#: whose metrics are all in the report, those with a minus sign subtracted. With no such alternative the cell
#: is empty.
#:
#: wavefronts and conflicts: the counters of the L1 data stage; op_ld holds ldmatrix, op_st stmatrix.
#: shared_*_instructions: those counted in the code (sass) are accesses with an active lane; those counted in
#: the pipeline also hold those whose lanes are all predicated off and, as loads, some of cp.async's work.
#: ldmatrix_instructions, mma_instructions: warp instructions. conflicts: the sum of the kinds that the
#: emulator's bank model covers.
#: mma_instructions: the tensor pipe's HMMA count also holds HFMA2.MMA, with which ptxas sets registers.
#: global_sectors: 32-byte sectors that the L1 looked up for ld.global and st.global.
COUNTERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "shared_load_instructions": (
        ("smsp__sass_inst_executed_op_shared_ld.sum",),
        ("smsp__inst_executed_op_shared_ld.sum",),
    ),
    "shared_store_instructions": (
        ("smsp__sass_inst_executed_op_shared_st.sum",),
        ("smsp__inst_executed_op_shared_st.sum",),
    ),
    "ldmatrix_instructions": (
        ("smsp__inst_executed_op_ldsm.sum",),
        ("smsp__sass_inst_executed_op_ldsm.sum",),
    ),
    "wavefronts_ld": (("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),),
    "wavefronts_st": (("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",),),
    "conflicts_ld": (("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",),),
    "conflicts_st": (("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",),),
    "conflicts_atom": (("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",),),
    "conflicts": (
        (
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
        ),
    ),
    "mma_instructions": (
        (
            "sm__inst_executed_pipe_tensor_op_hmma.sum",
            "-sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum",
        ),
    ),
    "global_sectors_ld": (("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),),
    "global_sectors_st": (("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),),
    "wgmma_instructions": (("smsp__sass_inst_executed_op_shared_gmma.sum",),),
    "wavefronts_gmma": (("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",),),
    "conflicts_gmma": (("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma.sum",),),
    "tma_load_instructions": (("smsp__sass_inst_executed_op_tma_ld.sum",),),
    "tma_store_instructions": (
        ("smsp__sass_inst_executed_op_tma_st.sum", "smsp__sass_inst_executed_op_tma_red.sum"),
    ),
    "tma_sectors_ld": (("l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum",),),
    "tma_sectors_st": (
        (
            "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum",
            "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum",
        ),
    ),
}

#: GPU time of the launch, with the clocks that it had.
TIME = "gpu__time_duration.sum"

#: Lost arbitration between clients of the L1, and what else is behind a conflict counter that is not zero.
ARBITRATION = (
    "l1tex__data_bank_conflicts_type_arbitration.sum",
    "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_gds_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_gds_op_st.sum",
)

#: What can bound a kernel, by ncu's names: percentages of what each unit can do, over the cycles in which an
#: SM had work. ``shared`` is the data stage of the L1, 128 bytes a cycle, which shared and global accesses go
#: through; ``shared_most`` that of the SM with most to do. ``sms`` is the share of SM time in which they
#: had work; ``dram`` and ``l2`` are over the whole launch. ``warps`` is of the warps that an SM has room for.
BOUNDS: Mapping[str, str] = {
    "sms": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "shared": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active",
    "shared_most": "l1tex__data_pipe_lsu_wavefronts.max.pct_of_peak_sustained_active",
    "tensor": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "issue": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "alu": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "xu": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}

#: Beside them: instructions of the tensor pipe, warps a scheduler has and could issue from, spills, what
#: limits the number of blocks on an SM.
BOUND_DETAILS = (
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__warps_active.avg.per_cycle_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "smsp__sass_inst_executed_op_local.sum",
    "dram__bytes.sum",
    "lts__t_sectors.sum",
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block",
    "launch__waves_per_multiprocessor",
    *(f"launch__occupancy_limit_{what}" for what in ("blocks", "registers", "shared_mem", "warps")),
)

#: Why the warps of a scheduler did not issue: how many of them waited for it, a cycle that issued one.
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS: Mapping[str, str] = {
    reason: _STALL.format(reason)
    for reason in (
        "barrier",
        "branch_resolving",
        "dispatch_stall",
        "drain",
        "gmma",
        "imc_miss",
        "lg_throttle",
        "long_scoreboard",
        "math_pipe_throttle",
        "membar",
        "mio_throttle",
        "misc",
        "no_instruction",
        "not_selected",
        "selected",
        "short_scoreboard",
        "sleeping",
        "tex_throttle",
        "wait",
    )
}


def metric_names(columns: Iterable[str] = COUNTERS) -> list[str]:
    """Every metric that any alternative of the columns needs, each once."""
    groups = (group for column in columns for group in COUNTERS[column])
    return list(dict.fromkeys(name.removeprefix("-") for group in groups for name in group))


def available_metrics(listing: str) -> set[str]:
    """Base names (``l1tex__data_bank_conflicts_pipe_lsu``) in what ``ncu --query-metrics`` printed."""
    return set(re.findall(r"^\s*([a-z]\w*)(?=\s|$)", listing, flags=re.MULTILINE))


def known(names: Iterable[str], available: set[str]) -> list[str]:
    """Those of ``names`` whose base this GPU has."""
    return [name for name in dict.fromkeys(names) if name.partition(".")[0] in available]


def counters(raw: pd.DataFrame) -> pd.DataFrame:
    """The table's counter columns and ``time_ms`` of a raw page, a row a launch; <NA> where ncu has none."""
    result = pd.DataFrame(index=raw.index)
    for column, alternatives in COUNTERS.items():
        total = pd.Series(pd.NA, index=raw.index, dtype="Float64")
        for names in alternatives:
            if {name.removeprefix("-") for name in names} <= set(raw.columns):
                terms = [
                    -raw[name[1:]].astype("Float64") if name[0] == "-" else raw[name].astype("Float64")
                    for name in names
                ]
                total = total.fillna(pd.concat(terms, axis=1).sum(axis=1, skipna=False))
        result[column] = total.round().astype("Int64")
    time = raw[TIME] if TIME in raw.columns else pd.Series(float("nan"), index=raw.index)
    result["time_ms"] = (time * 1e3).astype("Float64")
    return result


def bounds(raw: pd.DataFrame) -> pd.DataFrame:
    """The columns of :data:`BOUNDS` in percent and those of :data:`STALLS` as ``stall_...``, a row a launch;
    <NA> where ncu has none."""
    names = {**BOUNDS, **{f"stall_{reason}": metric for reason, metric in STALLS.items()}}
    empty = pd.Series(pd.NA, index=raw.index, dtype="Float64")
    return pd.DataFrame(
        {
            name: raw[metric].astype("Float64") if metric in raw.columns else empty
            for name, metric in names.items()
        }
    )
