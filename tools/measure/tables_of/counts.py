"""Tables of counts, and of programs and findings that are counted."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ladder.counts import nsight
from ladder.course.lessons.recorded import UNITS
from ladder.operations import Problem
from ladder.run.evaluation import evaluate
from ladder.show.render import most_stalled
from ladder.stages import discover, of_today
from tools.measure import measure_other_kernels as other
from tools.measure.tables_of.data import H200, ROOT, markdown, measured_rows


def swizzle_parameters() -> str:
    """Conflicts of reads with each swizzle in every tile of v3, counted by the emulator."""
    stage = discover()["v3"]
    source = stage.kernel.read_text()
    rows = []
    for name, parameters in (("none", "0, 3, 3"), ("<3, 3, 3>", "3, 3, 3"), ("<3, 3, 4>", "3, 3, 4")):
        changed = source.replace("swizzle<B, M, S>(", f"swizzle<{parameters}>(")
        if changed == source:
            raise SystemExit(f"{stage.kernel} no longer calls swizzle<B, M, S>")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kernel.cu").write_text(changed)
            counted = []
            for head_dim in (64, 128):
                problem = Problem(1, 2, 256, 256, head_dim)
                result = evaluate(replace(stage, path=Path(folder)), problem, backend="emulator")
                counted.append(f"{result.row['conflicts_ld']:,}")
        rows.append([f"`{name}`" if name != "none" else name, *counted])
    return markdown(["swizzle", "d = 64", "d = 128"], rows)


def arbitration() -> str:
    """Conflicts and lost arbitration at two grids: minimum and maximum over the launches."""
    frame = measured_rows("arbitration.csv")
    frame["conflicts"] = nsight.counters(frame)["conflicts"]
    rows = []
    for (stage, d, n), launches in frame.groupby(["stage", "d", "N"], sort=False):
        name = f"{stage}" if stage != "v3_swizzle_for_128" else "v3 with `<3, 3, 4>`"
        grid = "one block an SM" if n == frame.N.min() else "full"
        spans = [_span(launches[column]) for column in ("conflicts", nsight.ARBITRATION[0])]
        rows.append([name, d, grid, *spans])
    return markdown(["kernel", "d", "grid", "conflicts", "lost arbitration"], rows)


def _span(values: pd.Series) -> str:
    least, most = int(values.min()), int(values.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def bounds(stage: str) -> str:
    """Utilisation of each unit in a rung and the one before, in percent, and the warps' stall reasons.

    Empty if the rung has not been measured; of the rung alone if the one before has not.
    """
    frame = measured_rows("bounds.csv") if (H200 / "bounds.csv").exists() else pd.DataFrame({"stage": []})
    measured = set(frame.stage)
    if stage not in measured:
        return ""
    names = [name for name in (discover()[stage].before, stage) if name in measured]
    launches = frame[frame.stage.isin(names)]
    shared = launches.groupby(["N", "d"]).filter(lambda group: group.stage.nunique() == len(names))
    # Of the problems that both were measured on, take the one with the most work, each rung in its own dtype.
    n, d = shared.assign(work=shared.N * shared.M * shared.d).sort_values("work").iloc[-1][["N", "d"]]
    chosen = shared[(n == shared.N) & (shared.d == d)].set_index("stage").loc[names]
    counted, shares = nsight.counters(chosen), nsight.bounds(chosen)
    units = [(heading, column) for heading, column in UNITS if shares[column].notna().all()]
    rows = [[heading, *(f"{value:.0f}%" for value in shares[column])] for heading, column in units]
    if not discover()[stage].only_arch:  # whose factors wgmma reads
        extra = counted.conflicts / (counted.wavefronts_ld + counted.wavefronts_st)
        rows.append(["wavefronts that conflicts add", *(f"{value:.0%}" for value in extra)])
    stalls = [{str(name): value for name, value in row.items()} for row in shares.to_dict("records")]
    rows.append(["warps wait for", *(", ".join(most_stalled(row)[:2]) for row in stalls)])
    head = [f"B4 H16 N{int(n)} d{int(d)}", *(f"`{name}`" for name in names)]
    title = "On an H200, by Nsight Compute's counters ([what the words mean](../../docs/glossary.md)):\n\n"
    return title + markdown(head, rows)


def tensor_cores_of_the_last() -> str:
    """How busy the tensor cores are in attention's last measured rung, and the clock, in a sentence.

    wgmma does 4,096 operations per clock and SM in 16 bits.
    """
    frame = measured_rows("bounds.csv")
    name = [stage.name for stage in discover().computing("attention") if stage.name in set(frame.stage)][-1]
    [row] = frame[(frame.stage == name) & (frame.d == 128)].to_dict("records")
    seconds, flops = row["gpu__time_duration.sum"], 4.0 * row["B"] * row["H"] * row["N"] ** 2 * row["d"]
    tensor = row["sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"] / 100
    active = row["sm__cycles_active.avg.pct_of_peak_sustained_elapsed"] / 100
    clock = flops / seconds / (row["sm_count"] * 4096 * tensor * active)
    own, ms, tflops = name.partition("_")[0], seconds * 1e3, flops / seconds / 1e12
    return (
        f"At d = 128 the tensor cores of {own}'s SMs are busy in {tensor:.0%} of the cycles. This was one "
        f"launch under the profiler: {ms:.3f} ms, {tflops:.0f} TFLOP/s, at {clock / 1e9:.1f} GHz. Back-to-"
        "back launches, as in the table, run at a lower clock, which is limited by power.\n"
    )


#: The steps of FlashAttention-2's Algorithm 1 (Dao 2023), by the beginning of a tile kernel's line.
_STEPS = (
    (r"load\(q,", " 3  load Q_i"),
    (r"zero\(o\)", " 5  O_i = 0"),
    (r"zero\(l\)", " 5  l_i = 0"),
    (r"neg_infty\(m\)", " 5  m_i = -inf"),
    (r"for \(int (key = 0; |part = )", " 6  for all j"),
    (r"block::load\(k_smem|fetch<A>\(kv_smem\[last", " 7  load K_j, V_j"),
    (r"mma_ABt\(s", " 8  S = Q_i K_j^T"),
    (r"row_max(_in_lane)?\(m_new", " 9  m_new = max(m, rowmax(S))"),
    (r"exp2\(s, s\)", " 9  P = exp(S - m)"),
    (r"row_sum(_in_lane)?\(l", " 9  l = exp(m_old - m) l + rowsum(P)"),
    (r"mul_row\(o, o, rescale\)", "10  O_i = diag(exp(m_old - m)) O_i"),
    (r"mma_AB\(o", "10  O_i = O_i + P V_j"),
    (r"div_row\(o, o, l\)", "12  O_i = diag(l)^-1 O_i"),
    (r"(block::)?store\(gmem\.o", "14  write O_i"),
    (r"add\(l, l, m\)", "13  L_i = m + log(l)"),
    (r"(block::)?store\(gmem\.lse", "15  write L_i"),
)


def beside_the_algorithm(stage: str) -> str:
    """A rung's ``__global__`` function beside the algorithm's step that each line implements."""
    text = discover()[stage].kernel.read_text()
    [kernel] = re.findall(r"^__global__.*?^}$", text, re.DOTALL | re.MULTILINE)
    lines, left = [], list(_STEPS)
    for line in kernel.splitlines():
        step = next((s for s in left if re.match(s[0], line.strip())), None)
        if step:
            left.remove(step)
        lines.append(f"{line:<92}// {step[1]}" if step else line)
    if left:
        raise SystemExit(f"{stage}: no line does {', '.join(text.strip() for _, text in left)}")
    return "```cpp\n" + "\n".join(lines) + "\n```\n"


#: The rungs of README's sample.
SAMPLE = ("v1", "v1b", "v2", "v3", "v3b", "v4")


def output() -> str:
    """The output of ``ladder compare`` with six rungs, on a terminal of 80 columns without a GPU."""
    command = [sys.executable, "-m", "ladder", "compare", *SAMPLE, "--backend", "emulator"]
    environment = {**os.environ, "COLUMNS": "80", "LADDER_LANGUAGE": "en"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    lines = [line.rstrip() for line in done.stdout.rstrip().splitlines()]
    return "\n".join(["```", f"$ ladder compare {' '.join(SAMPLE)}", *lines, "```", ""])


def first_stops() -> str:
    """How long the debugger takes to a rung's first stop."""
    frame = of_today(pd.read_csv(ROOT / "results" / "first_stops.csv", dtype=str), "rung")
    times = ["cold_s", "cold_cpu_s", "built_s", "built_cpu_s"]
    rows = [(f"`{row.rung}`", *(getattr(row, time) for time in times)) for row in frame.itertuples()]
    first, loads = frame.iloc[0], frame.load.astype(float)
    machine = f"{first.cpu} with {first.cpus} cores, nvcc {first.nvcc}, {first.date}"
    load = f"with nice {first.nice} beside other work (load average {loads.min():.0f} to {loads.max():.0f})"
    title = f"Seconds on an {machine}, {load}:\n\n"
    head = ["rung", "empty cache", "processor time", "built", "processor time"]
    return title + markdown(head, rows)


def checks() -> str:
    """What a check of a changed kernel takes, by the kind of exercise: the least and the most."""
    frame = pd.read_csv(ROOT / "results" / "checks.csv")
    on_hopper = frame.rung.map({stage.name: bool(stage.only_arch) for stage in discover()})
    kinds = {
        "a program": frame.rung.isna(),
        "a rung below v7": on_hopper.eq(False),
        "a rung from v7 on": on_hopper.eq(True),
    }
    rows = []
    for kind, chosen in kinds.items():
        own = frame[chosen]
        spans = (own[column] for column in ("alone_s", "kept_s", "watched_s"))
        ends = (dict.fromkeys((f"{span.min():.1f}", f"{span.max():.1f}")) for span in spans)
        rows.append([kind, len(own), *map(" to ".join, ends)])
    [(nice, cpu, nvcc, date)] = (
        frame[["nice", "cpu", "nvcc", "date"]].drop_duplicates().itertuples(index=False)
    )
    load = (
        f"with nice {nice} beside other work (load average {frame.load.min():.0f} to {frame.load.max():.0f})"
    )
    title = f"Seconds of processor time on an {cpu}, {load}, nvcc {nvcc}, {date}:\n\n"
    head = ["exercise on", "exercises", "`check` in a script", "`check` on a terminal", "`watch`"]
    return title + markdown(head, rows)


def sanitizer() -> str:
    """How many of the corpus's planted faults, by kind, and of its clean kernels are reported."""
    frame = pd.read_csv(ROOT / "results" / "sanitizer.csv")
    frame = frame[frame["compute-sanitizer"].notna()]
    told = frame[["ours", "compute-sanitizer"]] == "reported"
    kinds = told.groupby(frame.expected).sum()
    kinds.insert(0, "cases", frame.groupby("expected").size())
    planted = kinds.drop(index="clean").sort_values("cases", ascending=False, kind="stable")
    rows = [(kind, *counts) for kind, counts in zip(planted.index, planted.to_numpy(), strict=True)]
    rows.append(("all planted faults", *planted.sum()))
    rows.append(("clean kernels", *kinds.loc["clean"]))
    where = [" and ".join(sorted(frame[name].unique())) for name in ("gpu", "driver", "compiler", "date")]
    title = "compute-sanitizer on an {}, driver {}, {}, {}:\n\n".format(*where)
    return title + markdown(["planted", "cases", "reported here", "by compute-sanitizer"], rows)


#: Headings of the counts that kernels of public repositories have.
_COUNTS = {
    "shared_load_instructions": "shared loads",
    "shared_store_instructions": "shared stores",
    "ldmatrix_instructions": "ldmatrix",
    "wavefronts_ld": "wavefronts ld",
    "wavefronts_st": "wavefronts st",
    "conflicts_ld": "conflicts ld",
    "conflicts_st": "conflicts st",
    "conflicts_atom": "conflicts of atomics",
    "mma_instructions": "mma",
    "global_sectors_ld": "sectors read",
    "global_sectors_st": "sectors written",
    "tma_load_instructions": "bulk loads",
    "tma_sectors_ld": "sectors of bulk loads",
}


def other_kernels() -> str:
    """The counts of kernels of public repositories; where GPU and emulator differ, both and the cause."""
    launches, counted = other.read()
    cells = other.differences(launches, counted)
    differing = {(cell.key, cell.column): cell for cell in cells}
    columns = [name for name in other.COLUMNS if counted[name].any()]
    rows = []
    for kernel in counted.to_dict("records"):
        key, shown, causes = tuple(kernel[name] for name in other.KEY), [], []
        for column in columns:
            cell = differing.get((key, column))
            shown.append(f"{kernel[column]:,}" if cell is None else f"{cell.measured} / {cell.emulated}")
            if cell and cell.cause not in causes:
                causes.append(cell.cause)
        sizes = " x ".join(str(math.prod(map(int, kernel[of].split("x")))) for of in ("grid", "block"))
        name = f"{kernel['repository'].partition('/')[2]} `{kernel['kernel']}`"
        rows.append([name, sizes, *shown, ", ".join(causes)])
    where = launches[["gpu", "driver", "compiler", "ncu", "date"]].drop_duplicates()
    [(gpu, driver, compiler, ncu, date)] = where.itertuples(index=False)
    title = f"{gpu} (driver {driver}), {compiler}, Nsight Compute {ncu}, {date}: "
    title += f"{other.summary(cells, len(counted))}.\n\n"
    head = ["kernel", "blocks x threads", *(_COUNTS[name] for name in columns), "cause"]
    return title + markdown(head, rows).replace("---: |\n", "--- |\n", 1)
