#!/usr/bin/env python3
"""Fills the tables of the lessons and the README from measurements and counts.

    python results/tables.py [--check]

A table is enclosed by ``<!-- table NAME -->`` and ``<!-- end of table -->``. With ``--check``, nothing is
written, and the exit code is 1 if a table does not match its data.
"""

from __future__ import annotations

import argparse
import io
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import measure_distributed
import measure_other_kernels as other
import pandas as pd
from rich.console import Console
from steps import changed_lines

from ladder import nsight
from ladder.evaluation import evaluate, run_comparison
from ladder.lessons.recorded import DENSE, UNITS, hstu_problem, options_by_head_dim
from ladder.operations import DEFAULT_OPERATION, DEFAULT_PROBLEM, OPERATIONS, Problem
from ladder.render import comparison_tables, most_stalled
from ladder.stages import Stage, discover, examples_root, of_today, root

ROOT = Path(__file__).resolve().parent.parent
H200 = ROOT / "results" / "h200"
H100 = ROOT / "results" / "h100"

#: The files that contain tables.
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "debugger.md",
    ROOT / "docs" / "distributed.md",
    ROOT / "docs" / "ladders.md",
    ROOT / "docs" / "other_kernels.md",
    ROOT / "docs" / "rungs.md",
    ROOT / "docs" / "sanitizer.md",
    ROOT / "docs" / "speed.md",
    *sorted((ROOT / "stages").glob("*/README.md")),
)


def measured_rows(name: str) -> pd.DataFrame:
    """A file of ``results/h200/``, under the names that the rungs have today."""
    rows = pd.read_csv(H200 / name)
    return of_today(rows, "contender" if "contender" in rows else "stage")


_TABLE = re.compile(r"(<!-- table (?P<name>\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def swizzle_parameters() -> str:
    """Conflicts of reads with each swizzle in every tile of v3_swizzle, counted by the emulator."""
    stage = discover()["v3_swizzle"]
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
    return _markdown(["swizzle", "d = 64", "d = 128"], rows)


def arbitration() -> str:
    """Conflicts and lost arbitration at two grids: minimum and maximum over the launches."""
    frame = measured_rows("arbitration.csv")
    frame["conflicts"] = nsight.counters(frame)["conflicts"]
    rows = []
    for (stage, d, n), launches in frame.groupby(["stage", "d", "N"], sort=False):
        name = f"{stage}" if stage != "v3_swizzle_for_128" else "v3_swizzle with `<3, 3, 4>`"
        grid = "one block an SM" if n == frame.N.min() else "full"
        spans = [_span(launches[column]) for column in ("conflicts", nsight.ARBITRATION[0])]
        rows.append([name, d, grid, *spans])
    return _markdown(["kernel", "d", "grid", "conflicts", "lost arbitration"], rows)


def _span(values: pd.Series) -> str:
    least, most = int(values.min()), int(values.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def speed() -> str:
    """TFLOP/s of the rungs and of torch's backends, and the multiple of torch's flash backend."""
    frame = measured_rows("speed.csv")
    shown = (frame.N == 4096) | ((frame.dtype == "f32") & (frame.d == 64) & ~frame.causal.astype(bool))
    return _speeds_by_rung(frame[shown], DEFAULT_OPERATION, ("of_flash",))


def _speeds_by_rung(frame: pd.DataFrame, operation: str, ratios: Sequence[str]) -> str:
    """One row per rung and backend of torch, one column per problem: TFLOP/s, and multiples of torch's."""
    measured = frame[frame.N.notna() & (frame.contender != "torch efficient")].copy()
    measured["problem"] = [
        f"{row.dtype} N{row.N:.0f} d{row.d:.0f}{' causal' if row.causal in (True, 'True') else ''}"
        for row in measured.itertuples()
    ]
    rungs = [stage.name for stage in discover().computing(operation)]
    present = set(measured.contender)
    names = [*(name for name in rungs if name in present), *sorted(present - set(rungs))]
    rows = []
    for name in names:
        cells = {}
        for _, row in measured[measured.contender == name].iterrows():
            known = [f"{row[ratio]:.2f}" for ratio in ratios if pd.notna(row[ratio]) and row[ratio] != 1]
            cells[row.problem] = f"{row.tflops:.3g}" + (f" ({', '.join(known)})" if known else "")
        shown = name if name.startswith("torch") else f"`{name}`"
        rows.append([shown, *(cells.get(problem, "") for problem in measured.problem.unique())])
    return _markdown(["", *measured.problem.unique()], rows)


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
    rows.append(["warps wait for", *(", ".join(most_stalled(row)[:2]) for row in shares.to_dict("records"))])
    head = [f"B4 H16 N{int(n)} d{int(d)}", *(f"`{name}`" for name in names)]
    title = "On an H200, by Nsight Compute's counters ([what the words mean](../../docs/glossary.md)):\n\n"
    return title + _markdown(head, rows)


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


def _beside_the_algorithm(stage: str) -> str:
    """A rung's ``__global__`` function beside the algorithm's step that each line implements."""
    text = (ROOT / "stages" / stage / "kernel.cu").read_text()
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


def rungs(*operations: str) -> str:
    """For docs/ladders.md: the rungs of these operations, with idea, lines, page and lesson."""
    own = [stage for stage in discover() if stage.computes in operations and stage.path.parent == root()]
    return _table_of_rungs(own)


def rungs_of_attention(*operations: str, is_variant: bool) -> str:
    """:func:`rungs`, of those alone that need a feature of the problem, the variants, or of all others."""
    found = [stage for name in operations for stage in discover().computing(name)]
    return _table_of_rungs([s for s in found if s.path.parent == root() and bool(s.needs) == is_variant])


def _table_of_rungs(own: Sequence[Stage]) -> str:
    rows = [[_rung_link(stage), stage.idea, _lines(stage), _lesson_links(stage)] for stage in own]
    table = _markdown(["rung", "the one idea", "lines", "lesson"], rows).replace("](", "](../")
    return table.replace("| --- | ---: | ---: | ---: |", "| --- | --- | ---: | --- |")


def rungs_with_speeds() -> str:
    """:func:`rungs` of attention, with the speed of each on the H200, in the run that measured it."""
    rows = []
    for stage in discover().computing("attention"):
        if stage.path.parent == root() and not stage.needs:
            speeds = [rung_speed(stage.name, head_dim) for head_dim in (64, 128)]
            rows.append([_rung_link(stage), stage.idea, _lines(stage), *speeds, _lesson_links(stage)])
    table = _markdown(["rung", "the one idea", "lines", "d = 64", "d = 128", "lesson"], rows)
    return table.replace(
        "| --- | ---: | ---: | ---: | ---: | ---: |", "| --- | --- | ---: | ---: | ---: | --- |"
    )


def _rung_link(stage: Stage) -> str:
    page = "README.md" if (stage.path / "README.md").is_file() else "kernel.cu"
    return f"[`{stage.name}`](stages/{stage.name}/{page})"


def takes(*operations: str) -> str:
    """What each rung and example of these operations takes, as its stage.toml says."""
    stages = [stage for operation in operations for stage in discover().computing(operation)]
    rows = [_taken(stage) for stage in stages if stage.path.parent in (root(), examples_root())]
    head = ["rung", "GPU", "dtypes", "head dims", "also takes", "needs", "same bits"]
    return _markdown(head, rows).replace("---:", "---")


def _taken(stage: Stage) -> list[str]:
    minimum = "sm_{}{} and later".format(*stage.min_compute_capability)
    lists = (stage.dtypes, stage.head_dims, stage.takes, stage.needs)
    return [
        f"[`{stage.name}`](../{stage.path.relative_to(ROOT)}/kernel.cu)",
        f"{stage.only_arch} alone" if stage.only_arch else minimum,
        *(", ".join(map(str, values)) for values in lists),
        "yes" if stage.deterministic else "no",
    ]


def _lines(stage: Stage) -> str:
    """The lines of code that the rung adds to the one before it, and removes."""
    if stage.before is None:
        return ""
    added, removed = changed_lines(discover()[stage.before], stage)
    return f"+{added} -{removed}"


def _lesson_links(stage: Stage) -> str:
    """The links of a stage's lessons in notebooks/README.md."""
    listed = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8").splitlines()
    lessons = [re.search(r"\[(\w+)\]\((\S+)\)", line) for line in listed if f"`{stage.name}`" in line]
    return ", ".join(f"[{found[1]}](notebooks/{found[2]})" for found in lessons if found)


def rung_speed(stage: str, head_dim: int) -> str:
    """TFLOP/s at B4 H16 N4096 in bf16, and relative to cuDNN's attention in the same run."""
    measured = measured_rows("speed.csv")
    at = (measured.N == 4096) & (measured.d == head_dim) & (measured.causal.astype(str) == "False")
    same = measured[at & (measured.contender == stage) & (measured.dtype == "bf16")]
    return "" if same.empty else f"{same.tflops.median():.3g} ({same.of_cudnn.median():.2f})"


def climb() -> str:
    """TFLOP/s of the sm_90a rungs, and relative to cuDNN: median, least and most of several runs."""
    runs = measured_rows("climb.csv").dropna(subset="N")
    rungs = runs.contender.str.startswith("v")
    frame = pd.concat([runs[rungs], runs[runs.contender == "torch cuDNN"]])
    rows = []
    for name, of_contender in frame.groupby("contender", sort=False):
        cells = []
        for _, same in of_contender.groupby(["d", "causal"]):
            ratio = same.of_cudnn
            cells.append(
                f"{same.tflops.median():.0f} ({ratio.median():.2f}, {ratio.min():.2f}-{ratio.max():.2f})"
            )
        rows.append([f"`{name}`" if name.startswith("v") else name, *cells])
    return _markdown(["", "d64", "d64 causal", "d128", "d128 causal"], rows)


def climb_lengths() -> str:
    """TFLOP/s of the sm_90a rungs at other lengths and head dims, and relative to cuDNN."""
    frame = measured_rows("climb_lengths.csv").dropna(subset="N")
    frame = frame[frame.contender.str.startswith("v") | (frame.contender == "torch cuDNN")]
    rows = []
    for (b, n, d, causal), same in frame.groupby(["B", "N", "d", "causal"], sort=False):
        cells = same.set_index("contender")
        shown = {str(name): f"{cell.tflops:.0f} ({cell.of_cudnn:.2f})" for name, cell in cells.iterrows()}
        problem = f"B{b:.0f} N{n:.0f} d{d:.0f}" + (" causal" if causal else "")
        rows.append([problem, *(shown.get(name, "") for name in frame.contender.unique())])
    heads = (f"`{name}`" if name.startswith("v") else name for name in frame.contender.unique())
    return _markdown(["", *heads], rows)


def climb_ideas() -> str:
    """The speed of v12_order, and its losses without each of its ideas: medians of the runs."""
    frame = measured_rows("climb_ideas.csv").dropna(subset="N")
    own = frame[frame.contender.str.startswith("v")]
    speeds = own.pivot_table(
        index="contender", columns=["d", "causal"], values="tflops", aggfunc="median", sort=False
    )
    whole = speeds.loc["v12_order"]
    rows = [["`v12_order`", *(f"{value:.0f}" for value in whole)]]
    for name in speeds.index.drop("v12_order"):
        idea = name.partition(":")[0].removeprefix("v11_without_").replace("_", " ")
        shown = f"`{name}`" if name == "v10b_overlap" else f"without {idea}"
        losses = (f"{v:.0f} ({v / w - 1:+.0%})" for v, w in zip(speeds.loc[name], whole, strict=True))
        rows.append([shown, *losses])
    return _markdown(["", "d64", "d64 causal", "d128", "d128 causal"], rows)


def gradient_speeds() -> str:
    """TFLOP/s of the gradients' rungs and of torch, and relative to torch's flash and cuDNN backends."""
    frame = measured_rows("backward.csv")
    return _speeds_by_rung(frame[frame.N == 4096], "attention_backward", ("of_flash", "of_cudnn"))


def option_speeds(operation: str) -> str:
    """TFLOP/s of the rungs of windows, sinks, softcaps and sequences, and the multiple of the dense rung's
    speed in the same run. A mask whose right side is 0 is beside the causal dense rung.
    """
    frame = _options()
    return _options_by_head_dim(frame[frame.operation == operation])


def decoding_speeds() -> str:
    """What a kernel that only reads reaches, in TB/s, and which share of it the others do, by case."""
    frame = measured_rows("decoding.csv")
    of_read = frame.pivot(index="case", columns="contender", values="of_read")
    names = [name for name in frame.contender.unique() if name not in ("read only", "torch efficient")]
    rows = []
    for case, same in frame.groupby("case", sort=False):
        read = same.set_index("contender").tb_per_s["read only"]
        shares = (of_read.loc[case, name] for name in names)
        rows.append([str(case), f"{read:.2f}", *("" if pd.isna(x) else f"{x:.2f}" for x in shares)])
    heads = (f"`{name}`" if re.match(r"d\d_", name) else name for name in names)
    return _markdown(["", "read only, TB/s", *heads], rows)


def token_speeds() -> str:
    """Tokens per second of the attention of a model, by the sequences and their keys."""
    frame = measured_rows("tokens.csv")
    frame["case"] = [f"{row.B} x {row.M:,} keys" for row in frame.itertuples()]
    speeds = frame.pivot(index="case", columns="contender", values="tokens_per_s")
    names = [*frame.contender.unique()]
    rows = [[case, *(f"{speeds.loc[case, name]:,.0f}" for name in names)] for case in frame["case"].unique()]
    return _markdown(["", *(f"`{name}`" if "." in name else name for name in names)], rows)


def peer_speeds(name: str) -> str:
    """A pass of the fastest rungs and of other implementations: TFLOP/s in bursts and of single launches, and
    the last rung's multiples of the fastest of the others.
    """
    measured = pd.read_csv(H100 / "peers.csv")
    measured = measured[measured["pass"] == name]
    stages = {stage.name for stage in discover()}
    contenders = [*measured.contender.unique()]
    last = [contender for contender in contenders if contender in stages][-1]
    others = [contender for contender in contenders if contender not in stages]
    rows = []
    shape = ["B", "H", "Hkv", "N", "d", "dtype", "causal"]
    for (b, h, kv, n, d, dtype, causal), group in measured.groupby(shape, sort=False):
        speeds = group.set_index("contender")[["tflops_burst", "tflops_single"]]
        heads = f"{h}/{kv}" if h != kv else f"{h}"
        cells = [
            "/".join(f"{speed:.0f}" for speed in speeds.loc[one]) if one in speeds.index else ""
            for one in contenders
        ]
        best = speeds.loc[last] / speeds.reindex(others).max()
        problem = f"{dtype} B{b} H{heads} N{n} d{d}{' causal' if causal else ''}"
        rows.append([problem, *cells, "/".join(f"{ratio:.2f}" for ratio in best)])
    shown = [f"`{one}`" if one in stages else one for one in contenders]
    return _markdown(["", *shown, f"`{last}` / best peer"], rows)


def backward_parts() -> str:
    """Variants of b4g_wide_adds and others, as multiples of its speed: medians over the problems of each head
    dimension, with the least and the most.
    """
    measured = pd.read_csv(H100 / "backward_parts.csv").set_index(["B", "H", "Hkv", "N", "d", "causal"])
    by = {name: rows.tflops_single for name, rows in measured.groupby("contender", sort=False)}
    b4g = by.pop("b4g_wide_adds")
    rows = []
    for name, speeds in by.items():
        ratios = (speeds / b4g).dropna().groupby(level="d")
        spans = {d: f"{of_d.median():.2f} ({of_d.min():.2f} to {of_d.max():.2f})" for d, of_d in ratios}
        rows.append((spans[128], name, spans[64]))
    ordered = [(name, of_64, of_128) for of_128, name, of_64 in sorted(rows, reverse=True)]
    return _markdown(["", "d = 64", "d = 128"], ordered)


#: Contenders of ``h100/distributed.csv``, in words.
_ON_SEVERAL_GPUS = {
    "one": "one GPU",
    "all_gather": "`all_gather`",
    "ring": "`ring`",
    "zigzag": "`zigzag`",
    "ulysses": "`ulysses`",
    "torch one": "torch, one GPU, cuDNN",
    "torch allgather": "torch's `context_parallel`, allgather",
    "torch alltoall": "torch's `context_parallel`, alltoall",
}


def several_gpus() -> str:
    """Times of attention on two GPUs, and as a multiple of one GPU's speed, by length and pass: medians and
    the range over the runs.
    """
    frame = pd.read_csv(H100 / "distributed.csv")
    problems = [(n, name) for n in sorted(frame["N"].unique()) for name in ("forward", "both")]
    rows = []
    for contender, words in _ON_SEVERAL_GPUS.items():
        cells = []
        for n, name in problems:
            own = frame[(frame.contender == contender) & (frame["N"] == n) & (frame["pass"] == name)]
            low, high = (f"{x:.2f}" for x in (own.scaling.min(), own.scaling.max()))
            scaling = low if low == high else f"{low} to {high}"
            of_one = "" if contender.endswith("one") else f", {scaling} times"
            cells.append(f"{own.ms.median():.1f} ms{of_one}")
        rows.append([words, *cells])
    passes = {"forward": "forward", "both": "forward and backward"}
    return _markdown(["", *(f"N = {n:,}, {passes[name]}" for n, name in problems)], rows)


def plan_of_several_gpus() -> str:
    """A step of the zigzag by formula, with the measured speed of a GPU and of its link."""
    times, link = (pd.read_csv(H100 / f"distributed{name}.csv") for name in ("", "_link"))
    whole = times[
        (times.contender == "one") & (times["pass"] == "forward") & (times["N"] == times["N"].max())
    ]
    one = whole.iloc[0]
    tflops = 2.0 * one.d * one.H * one["N"] * (one["N"] + 1) / whole.ms.median() / 1e9
    options = argparse.Namespace(
        heads=int(one.H),
        kv_heads=int(one.Hkv),
        head_dim=int(one.d),
        tflops=tflops,
        link=link.gb_s.max(),
        network=_NETWORK_GB_S,
    )
    frame = measure_distributed.plan(options)
    within, between = f"{options.link:.0f} GB/s within a host", f"{options.network:.0f} GB/s between hosts"
    return f"{tflops:.0f} TFLOP/s, {within}, {between}:\n\n" + _markdown(
        [*frame.columns], frame.values.tolist()
    )


#: What 400 Gbit/s per GPU between hosts carry.
_NETWORK_GB_S = 50.0

#: Contenders of ``calls.csv`` under the names that readers know.
_CALLERS = {
    "ladder auto": "`ladder.attention`",
    "torch auto": "torch, a backend of its choice",
    "torch flash": "torch flash",
    "torch cuDNN": "torch cuDNN",
    "launch alone": "the launches alone",
    "launches alone": "the launches alone",
    "autograd alone": "an autograd function that computes nothing",
}


def _calls() -> pd.DataFrame:
    frame = pd.read_csv(H200 / "calls.csv")
    frame["caller"] = frame.contender.map(_CALLERS)
    return frame.dropna(subset="caller")


def call_times() -> str:
    """Microseconds of a call on the host, by caller and pass: the median over all problems, and the range."""
    frame = _calls()
    [(gpu, compiler, torch, date)] = frame[["gpu", "compiler", "torch", "date"]].drop_duplicates().to_numpy()
    passes = [*frame["pass"].unique()]
    times = frame.groupby(["caller", "pass"]).host_us
    cells = {key: f"{same.median():.0f} ({same.min():.0f} to {same.max():.0f})" for key, same in times}
    rows = [
        [caller, *(cells.get((caller, one), "") for one in passes)]
        for caller in dict.fromkeys(_CALLERS.values())
    ]
    title = f"{gpu}, {compiler}, torch {torch}, {date}, {frame.problem.nunique()} problems:\n\n"
    return title + _markdown(["microseconds on the host", *passes], rows)


def call_speeds() -> str:
    """TFLOP/s of calls that follow each other, by problem and caller: forward, d = 128, without a mask."""
    frame = _calls()
    own = frame[(frame["pass"] == "forward") & frame.problem.str.endswith(" d=128 bf16")].copy()
    own["problem"] = own.problem.str.replace(r"(B=\d+) .*(N=\d+) .*", r"`\1 \2`", regex=True)
    speeds = own.pivot(index="problem", columns="caller", values="tflops")
    callers = [*own.caller.unique()]
    rows = [[case, *(f"{speeds.loc[case, one]:.3g}" for one in callers)] for case in own.problem.unique()]
    return _markdown(["forward, H=16, d=128, bf16", *callers], rows)


def options(stage: str) -> str:
    """The rows of :func:`option_speeds` of one rung, with what they were measured on."""
    frame = _options()
    where = " and ".join(sorted(set(frame.gpu + ", " + frame.compiler + ", " + frame.date)))
    title = (
        f"B4 H16 N4096 in bf16 on an {where}: TFLOP/s of the pairs that the mask keeps, and the multiple of "
    )
    own = frame[frame.contender == stage]
    if own.empty:
        return "Not measured yet.\n"
    [operation] = own.operation.unique()
    return f"{title}{DENSE[operation]}'s speed.\n\n{_options_by_head_dim(own)}"


def _options() -> pd.DataFrame:
    frame = measured_rows("options.csv").dropna(subset="N")
    return frame[~frame.contender.str.startswith("torch")]


def _options_by_head_dim(frame: pd.DataFrame) -> str:
    """One row per rung and problem, one column per head dim."""
    cells = options_by_head_dim(frame)
    dims = dict.fromkeys(d for by_dim in cells.values() for d in by_dim)
    rows = [
        [f"`{stage}`", problem, *(by_dim.get(d, "") for d in dims)]
        for (stage, problem), by_dim in cells.items()
    ]
    return _markdown(["rung", "problem", *dims], rows).replace("| --- | ---: |", "| --- | --- |", 1)


def hstu_speeds() -> str:
    """TFLOP/s of the HSTU rungs, over the elements that the mask shows."""
    frame = measured_rows("hstu.csv").dropna(subset="N")
    frame["problem"] = [f"`{hstu_problem(row)}`" for row in frame.itertuples()]
    return _speeds_by_problem(frame, lambda row: f"{row.tflops:.0f}")


def few_queries() -> str:
    """Microseconds of HSTU's rungs on the problems that h4_arrangement is for."""
    frame = pd.read_csv(H100 / "few_queries.csv").dropna(subset="N")
    frame["problem"] = [f"`{hstu_problem(row)}`" for row in frame.itertuples()]
    return _speeds_by_problem(frame, lambda row: f"{row.time_ms * 1e3:.0f}")


def _speeds_by_problem(frame: pd.DataFrame, cell: Callable[[pd.Series], str]) -> str:
    """One row a problem, one column a contender: the medians of its runs."""
    names = list(frame.contender.unique())
    rows = []
    for problem, same in frame.groupby("problem", sort=False):
        measured = {name: cell(runs.median(numeric_only=True)) for name, runs in same.groupby("contender")}
        rows.append([problem, *(measured.get(name, "") for name in names)])
    return _markdown(["", *(name if name.startswith("torch") else f"`{name}`" for name in names)], rows)


def output() -> str:
    """The output of ``ladder compare`` with three rungs on a machine without a GPU."""
    console = Console(width=80, color_system=None, file=io.StringIO(), force_jupyter=False)
    comparison = run_comparison(
        DEFAULT_PROBLEM, ["v1_minimal", "v2_warp_mma", "v3_swizzle"], backend="emulator"
    )
    for table in comparison_tables(comparison, discover(), console.width):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().rstrip().splitlines()]
    # The allowed error depends on the rounding of torch's own attention, which differs between CPUs.
    kept = [line for line in lines if not line.startswith("   allowed")]
    return "\n".join(["```", *kept, "```", ""])


def first_stops() -> str:
    """How long the debugger takes to a rung's first stop."""
    frame = pd.read_csv(ROOT / "results" / "first_stops.csv", dtype=str)
    times = ["cold_s", "cold_cpu_s", "built_s", "built_cpu_s"]
    rows = [(f"`{row.rung}`", *(getattr(row, time) for time in times)) for row in frame.itertuples()]
    first, loads = frame.iloc[0], frame.load.astype(float)
    machine = f"{first.cpu} with {first.cpus} cores, nvcc {first.nvcc}, {first.date}"
    load = f"with nice {first.nice} beside other work (load average {loads.min():.0f} to {loads.max():.0f})"
    title = f"Seconds on an {machine}, {load}:\n\n"
    head = ["rung", "empty cache", "processor time", "built", "processor time"]
    return title + _markdown(head, rows)


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
    return title + _markdown(["planted", "cases", "reported here", "by compute-sanitizer"], rows)


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
    return title + _markdown(head, rows).replace("---: |\n", "--- |\n", 1)


#: The operations that have rungs; the others have an example each.
_LADDERS = ("attention", "attention_backward", "decoding", "hstu", "hstu_backward")

TABLES: dict[str, Callable[[], str]] = {
    "other-kernels": other_kernels,
    "first-stops": first_stops,
    "sanitizer": sanitizer,
    "v4-kernel": lambda: _beside_the_algorithm("v4_tk_tiles"),
    "climb": climb,
    "climb-lengths": climb_lengths,
    "climb-ideas": climb_ideas,
    "gradient-speeds": gradient_speeds,
    "hstu-speeds": hstu_speeds,
    "few-queries": few_queries,
    "decoding-speeds": decoding_speeds,
    "token-speeds": token_speeds,
    "several-gpus": several_gpus,
    "several-gpus-plan": plan_of_several_gpus,
    "call-times": call_times,
    "call-speeds": call_speeds,
    "peer-speeds": partial(peer_speeds, "forward"),
    "backward-parts": backward_parts,
    "option-speeds": partial(option_speeds, "attention"),
    "option-speeds-backward": partial(option_speeds, "attention_backward"),
    "swizzle-parameters": swizzle_parameters,
    "arbitration": arbitration,
    "speed": speed,
    "rungs": rungs_with_speeds,
    "rungs-backward": lambda: rungs_of_attention("attention_backward", is_variant=False),
    "rungs-variants": lambda: rungs_of_attention("attention", "attention_backward", is_variant=True),
    "rungs-decoding": lambda: rungs("decoding"),
    "rungs-hstu": lambda: rungs("hstu", "hstu_backward"),
    "output": output,
    **{f"takes-{operation}": partial(takes, operation) for operation in _LADDERS},
    "takes-examples": lambda: takes(*(one for one in OPERATIONS if one not in _LADDERS)),
    **{f"options-{stage.name}": partial(options, stage.name) for stage in discover() if stage.needs},
    **{f"bounds-{stage.name}": partial(bounds, stage.name) for stage in discover().computing("attention")},
}


def fill(text: str) -> str:
    """Regenerates the tables of a page."""
    return _TABLE.sub(lambda match: match[1] + TABLES[match["name"]]() + match[3], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a table is out of date")
    options = parser.parse_args()
    stale = []
    for page in PAGES:
        before = page.read_text()
        after = fill(before)
        if after == before:
            continue
        stale.append(page)
        if not options.check:
            page.write_text(after)
    for page in stale:
        print(f"{page.relative_to(ROOT)}: {'out of date' if options.check else 'written'}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
