"""Tables of speeds that were measured on GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from ladder.course.lessons.recorded import hstu_problem, options_by_head_dim
from ladder.operations import DEFAULT_OPERATION
from ladder.stages import discover
from tools.measure.tables_of.data import H100, H200, markdown, measured_rows


def speed() -> str:
    """TFLOP/s of the rungs and of torch's backends, and the multiple of torch's flash backend."""
    frame = measured_rows("speed.csv")
    shown = (frame.N == 4096) | ((frame.dtype == "f32") & (frame.d == 64) & ~frame.causal.astype(bool))
    return _speeds_by_rung(frame[shown], DEFAULT_OPERATION, ("of_flash",))


#: The measurements of the rungs, by operation.
SPEEDS = {"attention": "speed.csv", "attention_backward": "backward.csv"}


def gain(name: str) -> str:
    """TFLOP/s of a rung and of the one before it, on the problems that both take, and their ratios.

    Empty if there is no such problem.
    """
    stage = discover()[name]
    frame = measured_rows(SPEEDS[stage.computes])
    pair = frame[frame.contender.isin((stage.before, name))]
    titles = [
        f"B{row.B:.0f} N{row.N:.0f} d{row.d:.0f}{', causal' if row.causal else ''}"
        for row in pair.itertuples()
    ]
    both = pair.assign(problem=titles).pivot_table("tflops", "problem", "contender", sort=False).dropna()
    if stage.before is None or stage.before not in both:
        return ""
    ratios = both[name] / both[stage.before]
    rows = [
        [problem, *(f"{row[one]:.3g}" for one in (stage.before, name)), f"{ratios[problem]:.2f}"]
        for problem, row in both.iterrows()
    ]
    before, own = discover()[stage.before].number, stage.number
    where = f"TFLOP/s on an {frame.gpu[0]}, {frame.compiler[0]}, {frame.date[0]}, {pair.dtype.iloc[0]}, H16"
    title = f"{where}: {ratios.min():.2f} to {ratios.max():.2f} times {before}'s speed.\n\n"
    return title + markdown(["", before, own, f"{own} / {before}"], rows)


def any_head_dim() -> str:
    """TFLOP/s of x6 and of torch's fastest backends by head dim, without and with a causal mask."""
    frame = measured_rows("any_head_dim.csv")
    names = [discover()["x6"].name, "torch cuDNN", "torch flash"]
    table = frame.pivot_table("tflops", ["d", "causal"], "contender").sort_index()
    rows = [
        [f"{d:.0f}{', causal' if causal else ''}", *(f"{row[name]:.0f}" for name in names)]
        for (d, causal), row in table.iterrows()
    ]
    where = f"TFLOP/s on an {frame.gpu[0]}, {frame.compiler[0]}, torch {frame.torch[0]}, {frame.date[0]}"
    ratios = table[names[0]] / table[names[1:]].max(axis=1)
    title = (
        f"{where}, bf16, B4 H16 N4096: {ratios.min():.2f} to {ratios.max():.2f} times the speed of "
        "the faster of torch's two backends.\n\n"
    )
    return title + markdown(["d", "x6", *names[1:]], rows)


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
    return markdown(["", *measured.problem.unique()], rows)


def climb() -> str:
    """TFLOP/s of the sm_90a rungs, and relative to cuDNN: median, least and most of several runs."""
    runs = measured_rows("climb.csv").dropna(subset=["N", "run"])
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
    return markdown(["", "d64", "d64 causal", "d128", "d128 causal"], rows)


def climb_lengths() -> str:
    """TFLOP/s of the sm_90a rungs at other lengths and head dims, and relative to cuDNN."""
    measured = measured_rows("climb.csv")
    frame = measured[measured["run"].isna()].dropna(subset="N")
    frame = frame[frame.contender.str.startswith("v") | (frame.contender == "torch cuDNN")]
    rows = []
    for (b, n, d, causal), same in frame.groupby(["B", "N", "d", "causal"], sort=False):
        cells = same.set_index("contender")
        shown = {str(name): f"{cell.tflops:.0f} ({cell.of_cudnn:.2f})" for name, cell in cells.iterrows()}
        problem = f"B{b:.0f} N{n:.0f} d{d:.0f}" + (" causal" if causal else "")
        rows.append([problem, *(shown.get(name, "") for name in frame.contender.unique())])
    heads = (f"`{name}`" if name.startswith("v") else name for name in frame.contender.unique())
    return markdown(["", *heads], rows)


def gradient_speeds() -> str:
    """TFLOP/s of the gradients' rungs and of torch, and relative to torch's flash and cuDNN backends."""
    frame = measured_rows("backward.csv")
    return _speeds_by_rung(frame[frame.N == 4096], "attention_backward", ("of_flash", "of_cudnn"))


def on_h100(file: str, rungs: Sequence[str]) -> str:
    """TFLOP/s of these rungs and of cuDNN on an H100 at N = 4,096, with the rungs' multiples of cuDNN's."""
    frame, rungs = measured_rows(file, H100), [*map(discover().today, rungs)]
    frame = frame[(frame.N == 4096) & frame.contender.isin([*rungs, "torch cuDNN"])]
    problems = [
        f"d{row.d:.0f}{', causal' if row.causal in (True, 'True') else ''}" for row in frame.itertuples()
    ]
    speeds = frame.assign(problem=problems).pivot_table("tflops", "contender", "problem", sort=False)
    cudnn = speeds.loc["torch cuDNN"]
    rows = []
    for rung in rungs:
        pairs = zip(speeds.loc[rung], cudnn, strict=True)
        rows.append([f"`{rung}`", *(f"{own:.0f} ({own / best:.2f})" for own, best in pairs)])
    rows.append(["torch cuDNN", *(f"{best:.0f}" for best in cudnn)])
    return markdown([f"{frame.gpu.iloc[0]}, {frame.date.iloc[0]}", *speeds.columns], rows)


def option_speeds(name: str) -> str:
    """TFLOP/s of a pass of the rungs of windows, sinks, softcaps and sequences, and the multiple of the dense
    rung's speed. A mask whose right side is 0 is beside the causal dense rung.
    """
    frame = _options()
    return _options_by_head_dim(frame[frame["pass"] == name])


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
    return markdown(["", "read only, TB/s", *heads], rows)


def token_speeds() -> str:
    """Tokens per second of the attention of a model, by the sequences and their keys."""
    frame = measured_rows("tokens.csv")
    frame["case"] = [f"{row.B} x {row.M:,} keys" for row in frame.itertuples()]
    speeds = frame.pivot(index="case", columns="contender", values="tokens_per_s")
    names = [*frame.contender.unique()]
    rows = [[case, *(f"{speeds.loc[case, name]:,.0f}" for name in names)] for case in frame["case"].unique()]
    return markdown(["", *(f"`{name}`" if "." in name else name for name in names)], rows)


def peer_speeds(name: str) -> str:
    """A pass of the fastest rungs of attention beside other implementations. A rung that gives the same bits
    in every run is not the last one of gradients.
    """
    measured = measured_rows("peers.csv", H100)
    measured = measured[measured["pass"] == name]
    stages = {stage.name: stage for stage in discover()}
    compared = [rung for rung in stages if name == "forward" or not stages[rung].deterministic]
    return _beside_peers(measured, _attention_problem, compared)


def hstu_peer_speeds(name: str) -> str:
    """A pass of HSTU's rungs beside other implementations of it."""
    measured = measured_rows("hstu_peers.csv", H100)
    return _beside_peers(
        measured[measured["pass"] == name],
        lambda row: f"`{hstu_problem(row)}`",
        [stage.name for stage in discover()],
    )


def _attention_problem(row: Any) -> str:
    heads = f"{row.H}/{row.Hkv}" if row.Hkv != row.H else f"{row.H}"
    return f"{row.dtype} B{row.B} H{heads} N{row.N} d{row.d}{' causal' if row.causal else ''}"


def _beside_peers(measured: pd.DataFrame, problem: Callable[[Any], str], compared: Sequence[str]) -> str:
    """TFLOP/s in bursts and of single launches by problem and contender, and the speed of the last of the
    ``compared`` rungs that takes the problem as a multiple of the fastest other implementation's.
    """
    names = {stage.name for stage in discover()}
    contenders = [*measured.contender.unique()]
    rungs = [contender for contender in contenders if contender in names]
    others = [contender for contender in contenders if contender not in names]
    problems = pd.Series([problem(row) for row in measured.itertuples()], index=measured.index)
    rows = []
    for shown, group in measured.groupby(problems, sort=False):
        speeds = group.set_index("contender")[["tflops_burst", "tflops_single"]]
        cells = [
            "/".join(f"{speed:.0f}" for speed in speeds.loc[one]) if one in speeds.index else ""
            for one in [*rungs, *others]
        ]
        last = [rung for rung in rungs if rung in compared and rung in speeds.index][-1]
        best = speeds.loc[last] / speeds.reindex(others).max()
        rows.append([shown, *cells, "/".join(f"{ratio:.2f}" for ratio in best)])
    heads = [*(f"`{rung}`" for rung in rungs), *others]
    return markdown(["", *heads, "last rung / best peer"], rows)


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
    return title + markdown(["microseconds on the host", *passes], rows)


def call_speeds() -> str:
    """TFLOP/s of calls that follow each other, by problem and caller: forward, d = 128, without a mask."""
    frame = _calls()
    own = frame[(frame["pass"] == "forward") & frame.problem.str.endswith(" d=128 bf16")].copy()
    own["problem"] = own.problem.str.replace(r"(B=\d+) .*(N=\d+) .*", r"`\1 \2`", regex=True)
    speeds = own.pivot(index="problem", columns="caller", values="tflops")
    callers = [*own.caller.unique()]
    rows = [[case, *(f"{speeds.loc[case, one]:.3g}" for one in callers)] for case in own.problem.unique()]
    return markdown(["forward, H=16, d=128, bf16", *callers], rows)


def options(stage: str) -> str:
    """The rows of :func:`option_speeds` of one rung, with what they were measured on."""
    frame = _options()
    own = frame[frame.contender == stage]
    if own.empty:
        return "Not measured yet.\n"
    where = " and ".join(sorted(set(own.gpu + ", " + own.compiler + ", " + own.date)))
    dense = frame[frame.window.isna() & frame.softcap.isna() & frame.lengths.isna() & ~frame.sinks]
    [beside] = dense[dense["pass"].isin(own["pass"])].contender.unique()
    return (
        f"B4 H16 N4096 in bf16 on an {where}: TFLOP/s in bursts, of the pairs that the mask keeps, and the "
        f"multiple of {discover()[beside].number}'s speed.\n\n{_options_by_head_dim(own)}"
    )


def _options() -> pd.DataFrame:
    return measured_rows("options.csv", H100)


def _options_by_head_dim(frame: pd.DataFrame) -> str:
    """One row per rung and problem, one column per head dim."""
    cells = options_by_head_dim(frame)
    dims = dict.fromkeys(d for by_dim in cells.values() for d in by_dim)
    rows = [
        [f"`{stage}`", problem, *(by_dim.get(d, "") for d in dims)]
        for (stage, problem), by_dim in cells.items()
    ]
    return markdown(["rung", "problem", *dims], rows).replace("| --- | ---: |", "| --- | --- |", 1)


def hstu_speeds() -> str:
    """TFLOP/s of the HSTU rungs, over the pairs of a causal mask."""
    frame = measured_rows("hstu.csv").dropna(subset="N")
    frame["problem"] = [f"`{hstu_problem(row)}`" for row in frame.itertuples()]
    return _speeds_by_problem(frame, lambda row: f"{row.tflops:.0f}")


def few_queries() -> str:
    """Microseconds of HSTU's rungs on the problems that h4 is for."""
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
    return markdown(["", *(name if name.startswith("torch") else f"`{name}`" for name in names)], rows)
