"""Nsight Compute: its command line, its CSV pages read with pandas, and its names for the table's columns.

This is the one module that knows what ncu prints. Two pages are read:

``raw``     one row a kernel launch; a header row, then a row of units, then the launches. Around them stand
            lines of noise (``==PROF== ...``) and whatever the program printed. Numbers have thousands
            separators, and ncu scales units as it sees fit (Kbyte, usecond).
``source``  one table for each launch, with a row for each SASS instruction.

The names of metrics are documented in "Nsight Compute, Profiling Guide, Metrics Reference" and by
``ncu --query-metrics``; which of them count what the emulator counts was settled by measurement
(``results/measure_counters.py``).
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.errors import LadderError

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
    "tensor": "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    "issue": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "alu": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "xu": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}

#: Beside them: the tensor pipe's own cycles, warps a scheduler has and could issue from, spills, what limits
#: the number of blocks on an SM.
BOUND_DETAILS = (
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
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

#: From ncu's names on the source page (of several versions) to those of :func:`read_source`.
SOURCE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "executed": ("Instructions Executed", "inst_executed"),
    "wavefronts": ("L1 Wavefronts Shared", "memory_l1_wavefronts_shared"),
    "ideal": ("L1 Wavefronts Shared Ideal", "memory_l1_wavefronts_shared_ideal"),
    "sectors": ("L2 Theoretical Sectors Global", "memory_l2_theoretical_sectors_global"),
}

# Columns of the raw page that are no metrics.
_TEXT_COLUMNS = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Rule Name", "Rule Type", "Rule Description",
}  # fmt: skip

_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# Spelled as ncu spells them, old and new; a prefix may stand before each.
_BASE_UNITS = {"byte": "byte", "second": "second", "s": "second", "hz": "hz", "Hz": "hz"}

_ADVICE = {
    "ERR_NVGPUCTRPERM": LadderError(
        "Nsight Compute has no permission to read the GPU's counters (ERR_NVGPUCTRPERM)",
        "Run it as root, or let the driver admit all users: options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then reboot. On a rented GPU that is "
        "often impossible: ladder compare --backend emulator counts without any GPU.",
    ),
    "profiling tool": LadderError(
        "another profiler is using the GPU's counters",
        "Wait until it has ended (ncu, nsys, DCGM: dcgmi profile --pause), then run this again.",
    ),
    "LibraryNotLoaded": LadderError(
        "Nsight Compute cannot reach the driver's profiling library (LibraryNotLoaded)",
        "In a container this needs a runtime that passes the driver through, and --cap-add=SYS_ADMIN.",
    ),
    "Failed to find metric": LadderError(
        "this Nsight Compute does not know a metric that was asked for",
        "ncu --query-metrics lists those it knows for this GPU.",
    ),
}  # fmt: skip


# --- the command line ---------------------------------------------------------------------------------------


def find_ncu() -> Path:
    """ncu: ``LADDER_NCU``, PATH's, or that of a CUDA toolkit. Raises :class:`LadderError`."""
    candidates: list[Path] = []
    for name in (os.environ.get("LADDER_NCU"), shutil.which("ncu")):
        candidates += [Path(name)] if name else []
    candidates.append(Path("/usr/local/cuda/bin/ncu"))
    candidates += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    for path in candidates:
        if os.access(path, os.X_OK):
            return path
    raise LadderError(
        "Nsight Compute (ncu) is not there",
        "It comes with the CUDA toolkit; LADDER_NCU can name it. ladder compare --backend emulator counts "
        "without it.",
    )


def metric_names(columns: Iterable[str] = COUNTERS) -> list[str]:
    """Every metric that any alternative of the columns needs, each once."""
    groups = (group for column in columns for group in COUNTERS[column])
    return list(dict.fromkeys(name.removeprefix("-") for group in groups for name in group))


def command(
    program: Sequence[str],
    *,
    metrics: Iterable[str] = (),
    sections: Iterable[str] = (),
    kernel: str | None = None,
    report: Path | None = None,
    only_marked: bool = False,
    ncu: Path | str = "ncu",
) -> list[str]:
    """The command that runs ``program`` under ncu and prints the raw page, or writes ``report`` (.ncu-rep).

    ``kernel`` is a regular expression for kernel names. ``only_marked`` profiles nothing but what lies
    between cudaProfilerStart and cudaProfilerStop, and notes NVTX ranges. The clocks stay as they are: counts
    do not depend on them.
    """
    words = [str(ncu), "--clock-control", "none", "--target-processes", "all"]
    if only_marked:
        words += ["--profile-from-start", "off", "--nvtx"]
    if kernel is not None:
        words += ["-k", f"regex:{kernel}"]
    for section in sections:
        words += ["--section", section]
    names = list(dict.fromkeys(metrics))
    if names:
        words += ["--metrics", ",".join(names)]
    words += ["--force-overwrite", "-o", str(report)] if report else page_options("raw")
    return [*words, *program]


def import_command(report: Path, page: str, *options: str, ncu: Path | str = "ncu") -> list[str]:
    """The command that prints a page of a report as CSV."""
    return [str(ncu), "--import", str(report), *page_options(page), *options]


def page_options(page: str) -> list[str]:
    """What makes ncu print a page as CSV, numbers unscaled."""
    return ["--csv", "--page", page, "--print-units", "base"]


def run(words: Sequence[str], *, timeout_s: float | None = None) -> str:
    """Runs an ncu command and returns what it printed.

    Raises :class:`LadderError` that says what to do where ncu says it cannot.
    """
    try:
        # Numbers in the language of C, whatever the user's is.
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=timeout_s)
    except FileNotFoundError as error:
        raise LadderError(f"{words[0]} is not there", "LADDER_NCU can name Nsight Compute.") from error
    except subprocess.TimeoutExpired as error:
        raise LadderError(f"ncu took longer than {timeout_s:g} s", "Profile fewer launches.") from error
    check_messages(done.stdout + done.stderr)
    if done.returncode != 0:
        raise LadderError(f"ncu failed:\n{_tail(done.stderr or done.stdout)}")
    return done.stdout


def check_messages(text: str) -> None:
    """Raises :class:`LadderError` for what ncu cannot do here; ``text`` is all that it printed."""
    for line in text.splitlines():
        if line.startswith("==ERROR==") or "ERR_NVGPUCTRPERM" in line:
            for key, advice in _ADVICE.items():
                if key in line:
                    raise LadderError(f"{advice.message}: {_without_mark(line)}", advice.hint)


def _without_mark(line: str) -> str:
    return re.sub(r"^==\w+==\s*", "", line)


def _tail(text: str) -> str:
    lines = [_without_mark(line) for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-8:])


def available_metrics(listing: str) -> set[str]:
    """Base names (``l1tex__data_bank_conflicts_pipe_lsu``) in what ``ncu --query-metrics`` printed."""
    return set(re.findall(r"^\s*([a-z]\w*)(?=\s|$)", listing, flags=re.MULTILINE))


def known(names: Iterable[str], available: set[str]) -> list[str]:
    """Those of ``names`` whose base this GPU has."""
    return [name for name in dict.fromkeys(names) if name.partition(".")[0] in available]


# --- the raw page -------------------------------------------------------------------------------------------


def read_raw(source: str | Path) -> pd.DataFrame:
    """The raw page as ncu printed it: one row a launch, metrics as floats in base units.

    Base units are byte, second, hz and their quotients, with no prefix; ``attrs["units"]`` maps each metric
    to its own. A metric that a launch lacks is NaN. ``source`` is the text or a file. The long form that
    older versions print (a row for each metric) gives the same frame. Raises :class:`LadderError`.
    """
    text = _text(source)
    check_messages(text)
    header, rows = _table(text)
    if "Metric Name" in header:
        header, units, rows = _widen(header, rows)
    else:
        has_units = bool(rows) and not rows[0][0].strip()
        units = dict(zip(header, rows[0], strict=True)) if has_units else dict.fromkeys(header, "")
        rows = rows[1:] if has_units else rows
    columns: dict[str, Any] = {}
    base_units: dict[str, str] = {}
    for index, name in enumerate(header):
        cells = [row[index] for row in rows]
        values = None if name in _TEXT_COLUMNS or "Range:" in name else [_number(cell) for cell in cells]
        # A launch attribute such as "CachePreferNone" is text; an empty column is a missing metric.
        if values is None or any(value is None for value in values):
            columns[name] = pd.Series(cells, dtype="object")
            continue
        factor, base_units[name] = _base_unit(units[name])
        columns[name] = pd.Series(values, dtype="float64") * factor
    frame = pd.DataFrame(columns)
    frame.attrs["units"] = base_units
    return frame


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


def ranges(raw: pd.DataFrame, pattern: str) -> pd.Series:
    """For each launch the first group of ``pattern`` in its NVTX ranges, None where it has none."""
    expression = re.compile(pattern)
    columns = [name for name in raw.columns if "Range" in name]

    def find(row: pd.Series) -> str | None:
        found = (expression.search(str(row[name])) for name in columns)
        return next((match[1] for match in found if match), None)

    return pd.Series([find(row) for _, row in raw.iterrows()], index=raw.index, dtype="object")


def _text(source: str | Path) -> str:
    if isinstance(source, Path):
        try:
            return source.read_text(encoding="utf-8-sig", errors="replace")
        except OSError as error:
            raise LadderError(f"{source} cannot be read: {error.strerror}") from error
    return source


def _table(text: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the CSV in what ncu and the program printed. Tables of several runs, one after the
    other, are one when they have the same columns."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(r'"?ID"?,', line)]
    if not starts:
        raise LadderError("there is no table of Nsight Compute in this text", _why_empty(text))
    header: list[str] = []
    rows: list[list[str]] = []
    for row in csv.reader(line for line in lines[starts[0] :] if not line.startswith("==")):
        if row[:1] == ["ID"]:
            if header and row != header:
                raise LadderError("this text holds two tables of Nsight Compute with different columns")
            repeated = bool(header)
            header = row
            continue
        if len(row) != len(header) or not (row[0].strip().isdigit() or not row[0].strip()):
            continue  # printed by the program
        if not row[0].strip() and (repeated or rows):
            continue  # the units of a second table
        rows.append(row)
    return header, rows


def _why_empty(text: str) -> str:
    if "No kernels were profiled" in text:
        return "No kernel was profiled: the program launched none, or none of that name."
    return "It is printed by ncu --csv --page raw."


def _widen(header: list[str], rows: list[list[str]]) -> tuple[list[str], dict[str, str], list[list[str]]]:
    """From a row for each metric to a row for each launch."""
    fixed = [name for name in header if name not in ("Metric Name", "Metric Unit", "Metric Value")]
    launches: dict[str, dict[str, str]] = {}
    units = dict.fromkeys(fixed, "")
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        launch = launches.setdefault(cells["ID"], {name: cells[name] for name in fixed})
        metric = cells["Metric Name"]
        factor, unit = _base_unit(cells.get("Metric Unit", ""))
        value = _number(cells["Metric Value"])
        launch[metric] = cells["Metric Value"] if value is None else repr(value * factor)
        units[metric] = unit
    return list(units), units, [[launch.get(name, "") for name in units] for launch in launches.values()]


def _number(cell: str) -> float | None:
    """The value of a cell; NaN if it is empty, None if it is text.

    With instances shown a cell is "158 (0: 100; 1: 58)": the aggregate comes first.
    """
    word = cell.strip().partition(" (")[0].replace(",", "")
    if word.lower() in ("", "n/a", "nan", "no data", "-", "(!) n/a"):
        return float("nan")
    try:
        return float(word)
    except ValueError:
        return None


def _base_unit(unit: str) -> tuple[float, str]:
    """The factor to the base unit, and its name: "Kbyte/usecond" -> (1e9, "byte/second")."""
    numerator, _, denominator = unit.strip().partition("/")
    factor, name = _without_prefix(numerator)
    if not denominator:
        return factor, name
    divisor, per = _without_prefix(denominator)
    return factor / divisor, f"{name}/{per}"


def _without_prefix(unit: str) -> tuple[float, str]:
    for base, name in _BASE_UNITS.items():
        prefix = unit.removesuffix(base)
        if unit.endswith(base) and prefix in _PREFIXES:
            return _PREFIXES[prefix], name
    return 1.0, unit


# --- the source page ----------------------------------------------------------------------------------------


def read_source(source: str | Path) -> pd.DataFrame:
    """The source page: one row a SASS instruction, of one launch after the other.

    Columns: ``launch`` (0, 1, ... in the order of the page), ``kernel``, ``instruction`` (its number in the
    kernel), ``sass``, ``opcode`` (without its modifiers), those of :data:`SOURCE_COLUMNS` (<NA> where ncu has
    none), then ncu's own. Raises :class:`LadderError`.
    """
    text = _text(source)
    check_messages(text)
    frames: list[pd.DataFrame] = []
    for kernel, lines in _source_tables(text):
        frame = pd.read_csv(io.StringIO("\n".join(lines)), dtype="string", keep_default_na=False)
        launch = pd.DataFrame({"launch": len(frames), "kernel": kernel}, index=frame.index)
        launch["instruction"] = range(len(frame))
        launch["sass"] = frame["Source"].str.strip()
        launch["opcode"] = launch["sass"].map(opcode)
        for name, spellings in SOURCE_COLUMNS.items():
            found = next((spelling for spelling in spellings if spelling in frame.columns), None)
            cells = [_number(cell) if found else None for cell in frame[found or "Source"]]
            launch[name] = pd.Series(cells, dtype="Float64").round().astype("Int64")
        others = [name for name in frame.columns if name not in ("Source", *launch.columns)]
        frames.append(pd.concat([launch, frame[others]], axis=1))
    if not frames:
        raise LadderError("there is no source page of Nsight Compute in this text", _why_empty(text))
    return pd.concat(frames, ignore_index=True)


def opcode(sass: str) -> str:
    """``LDSM`` of ``@!P0 LDSM.16.M88.4 R4, [R8]``; empty for a line without an instruction."""
    match = re.match(r"(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", sass)
    return match[1] if match else ""


def _source_tables(text: str) -> Iterable[tuple[str, list[str]]]:
    """(kernel, lines of CSV) of each table; a line "Kernel Name","..." stands before each."""
    kernel, lines = "", list[str]()
    for line in text.splitlines():
        if line.startswith("=="):
            continue
        if re.match(r'"?Kernel Name"?,', line):
            if lines:
                yield kernel, lines
            kernel, lines = next(csv.reader([line]))[1], []
        elif re.match(r'("?#"?,)?"?Address"?,"?Source"?,', line) or re.match(r'("?#"?,)?"?Source"?,', line):
            if lines:
                yield kernel, lines
            lines = [line]
        elif lines and line.strip():
            lines.append(line)
    if lines:
        yield kernel, lines
