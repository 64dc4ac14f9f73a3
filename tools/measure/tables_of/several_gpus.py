"""Tables of attention on several GPUs."""

from __future__ import annotations

import argparse

from tools.measure import measure_distributed
from tools.measure.tables_of.data import H100, markdown

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
    frame = measure_distributed.read(H100 / measure_distributed.FILE, "times")
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
    return markdown(["", *(f"N = {n:,}, {passes[name]}" for n, name in problems)], rows)


def plan_of_several_gpus() -> str:
    """A step of the zigzag by formula, with the measured speed of a GPU and of its link."""
    file = H100 / measure_distributed.FILE
    times, link = (measure_distributed.read(file, what) for what in ("times", "link"))
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
    return f"{tflops:.0f} TFLOP/s, {within}, {between}:\n\n" + markdown(
        [*frame.columns], frame.values.tolist()
    )


#: What 400 Gbit/s per GPU between hosts carry.
_NETWORK_GB_S = 50.0
