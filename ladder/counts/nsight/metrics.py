"""Nsight Compute's metrics for the table's columns, for the bounds of a kernel, and for why warps wait.

The metrics are documented in "Nsight Compute, Profiling Guide, Metrics Reference" and by ``ncu
--query-metrics``. Measurements decided which of them count the same as the emulator
(``tools/measure/measure_counters.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pandas as pd

#: The table's columns and their metrics, as alternatives, best first. A column is the sum of the first
#: alternative whose metrics are all in the report; metrics with a minus sign are subtracted. If no
#: alternative is complete, the cell is empty.
#:
#: wavefronts and conflicts come from the L1 data stage; op_ld includes ldmatrix, op_st stmatrix.
#: shared_*_instructions: sass metrics count accesses with an active lane; pipeline metrics also include
#: accesses whose lanes are all predicated off and, as loads, some of cp.async's work. ldmatrix_instructions
#: and mma_instructions count warp instructions. conflicts is the sum of the kinds that the emulator's bank
#: model covers. mma_instructions: the tensor pipe's HMMA count also includes HFMA2.MMA, which ptxas uses to
#: set registers, and wgmma (reports for GPUs without it lack that metric). global_sectors counts the 32-byte
#: sectors that the L1 looked up for ld.global and st.global.
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
            "-smsp__sass_inst_executed_op_shared_gmma.sum",
        ),
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

#: GPU time of the launch, at whatever clocks it ran.
TIME = "gpu__time_duration.sum"

#: Lost arbitration between clients of the L1, and the other causes of a non-zero conflict counter.
ARBITRATION = (
    "l1tex__data_bank_conflicts_type_arbitration.sum",
    "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_gds_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_gds_op_st.sum",
)

#: The possible bounds of a kernel: utilisation of each unit in percent of its peak, over the cycles in which
#: the SMs were active. ``shared`` is the data stage of the L1, 128 bytes per cycle, which serves shared and
#: global accesses; ``shared_most`` is its maximum over the SMs. ``sms`` is the share of time in which SMs
#: were active; ``dram`` and ``l2`` are over the whole launch. ``warps`` is the share of an SM's warp slots in
#: use.
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

#: Shown beside the bounds: the tensor pipe's instructions, active and eligible warps per scheduler, spills,
#: and what limits the number of blocks per SM.
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

#: Why the warps of a scheduler did not issue: the number of warps stalled for a reason, per issuing cycle.
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
    """All metrics that any alternative of the columns needs, without duplicates."""
    groups = (group for column in columns for group in COUNTERS[column])
    return list(dict.fromkeys(name.removeprefix("-") for group in groups for name in group))


def available_metrics(listing: str) -> set[str]:
    """Parses base names, like ``l1tex__data_bank_conflicts_pipe_lsu``, from ``ncu --query-metrics``."""
    return set(re.findall(r"^\s*([a-z]\w*)(?=\s|$)", listing, flags=re.MULTILINE))


def known(names: Iterable[str], available: set[str]) -> list[str]:
    """The ``names`` whose base name is ``available``."""
    return [name for name in dict.fromkeys(names) if name.partition(".")[0] in available]


def counters(raw: pd.DataFrame) -> pd.DataFrame:
    """The table's counters and ``time_ms`` from a raw page, one row per launch; <NA> if ncu has no value."""
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
    """The columns of :data:`BOUNDS` in percent and those of :data:`STALLS` as ``stall_...``, one row per
    launch; <NA> if ncu has no value.
    """
    names = {**BOUNDS, **{f"stall_{reason}": metric for reason, metric in STALLS.items()}}
    empty = pd.Series(pd.NA, index=raw.index, dtype="Float64")
    return pd.DataFrame(
        {
            name: raw[metric].astype("Float64") if metric in raw.columns else empty
            for name, metric in names.items()
        }
    )
