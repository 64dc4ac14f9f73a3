#!/usr/bin/env python3
"""Measures all rungs from v8 on, and torch's attention, on small and on random problems in CUDA graphs.

    python3 -m tools.measure.small_grids --out results/h200 [--seconds 420] [--rounds 7]

Writes ``small_grids.csv`` after each problem, one row per contender: the time of a call in microseconds,
median, least and largest of the rounds, without host time. In each round the contenders replay their graphs
in random order. The choice of a rung for a problem (``ladder/call/waves.py``) is fitted to this table and
tested on it: :func:`fitted` gives the costs.
Needs a GPU of sm_90, nvcc and a Python with torch, pandas and rich; the package need not be installed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from ladder.call import waves
from ladder.operations import Problem
from ladder.operations.attention.baselines import attend
from ladder.stages import discover
from tools.bench.provenance import measured_on
from tools.measure.attention_inputs import make_inputs
from tools.measure.side_by_side import Rungs, of_function

RUNGS = tuple(map(discover().today, ("v8", "v9", "v10b", "v11b", "v12", "v12b", "v12c")))
#: Chosen before any rung was tuned on these problems.
SEED = 20261128
#: The time that a graph takes, of as many calls as that needs.
_GRAPH_US = 1000.0
#: Of batch * heads * N: more tokens are not small, and a call would take long.
_MOST_ROWS = 1 << 19


def small() -> Iterator[Problem]:
    """Grids that are small beside 132 multiprocessors."""
    for batch, heads, kv_heads, n, d in (
        (1, 16, 16, 2048, 128),
        (1, 32, 8, 1024, 128),
        (64, 16, 16, 256, 64),
        (32, 16, 16, 128, 64),
        (1, 8, 8, 512, 128),
    ):
        for is_causal in (False, True):
            yield Problem(batch, heads, n, n, d, kv_heads=kv_heads, dtype="bf16", is_causal=is_causal)


def drawn(count: int = 100, seed: int = SEED) -> list[Problem]:
    """Problems with N from 1 to 16,384, its logarithm uniform; half causal, half with groups of heads."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        n = round(2 ** chance.uniform(0, 14))
        heads, d = chance.choice((8, 16, 32)), chance.choice((64, 128, 256))
        kv_heads = heads // chance.choice((4, 8)) if chance.random() < 0.5 else heads
        is_causal = chance.random() < 0.5
        most = max(0, (_MOST_ROWS // (heads * n)).bit_length() - 1)
        batch = 2 ** chance.randint(0, min(most, 7))
        found.append(Problem(batch, heads, n, n, d, kv_heads=kv_heads, dtype="bf16", is_causal=is_causal))
    return found


def contenders(rungs: Rungs, problem: Problem) -> Iterator[tuple[str, Callable[[], Any]]]:
    inputs: dict[str, Any] = dict(make_inputs(problem))
    for name, _, make in rungs.contenders(problem, inputs):
        yield name, make()
    for name, backend in (
        ("torch cuDNN", SDPBackend.CUDNN_ATTENTION),
        ("torch flash", SDPBackend.FLASH_ATTENTION),
    ):
        run = of_function(partial(attend, problem, backend), problem, inputs)
        with suppress(RuntimeError):  # a backend that does not take the problem
            run()
            yield name, run


class Replay:
    """A CUDA graph of calls, as many as take a millisecond."""

    def __init__(self, run: Callable[[], Any]) -> None:
        stream = torch.cuda.Stream()
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            run()
            self._start.record()
            for _ in range(3):
                run()
            self._end.record()
        stream.synchronize()
        self._calls = max(1, round(3 * _GRAPH_US / (self._start.elapsed_time(self._end) * 1e3)))
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            for _ in range(self._calls):
                run()

    def microseconds(self) -> float:
        """Of a call, in one replay."""
        self._start.record()
        self._graph.replay()
        self._end.record()
        self._end.synchronize()
        return self._start.elapsed_time(self._end) * 1e3 / self._calls


def measured(rungs: Rungs, problem: Problem, rounds: int) -> list[dict[str, Any]]:
    """The rows of one problem. Raises ValueError for a rung whose o is not that of the others."""
    runs = dict(contenders(rungs, problem))
    outputs = {name: first_output(run()) for name, run in runs.items()}
    expected = outputs[RUNGS[0]].float()
    for name, o in outputs.items():
        if not torch.allclose(o.float(), expected, rtol=0, atol=0.05):
            raise ValueError(f"{name} on {problem}: o is another")
    replays = {name: Replay(run) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in replays}
    order = [*replays]
    for number in range(rounds + 1):
        random.Random(number).shuffle(order)
        for name in order:
            us = replays[name].microseconds()
            if number:  # the first round warms up
                times[name].append(us)
    kind = {"B": problem.batch, "H": problem.heads, "Hkv": problem.num_kv_heads, "N": problem.q_len}
    kind |= {"d": problem.head_dim, "causal": problem.is_causal}
    return [
        {**kind, "contender": name, "us": statistics.median(of), "least_us": min(of), "largest_us": max(of)}
        for name, of in times.items()
    ]


def fitted(table: pd.DataFrame) -> dict[str, dict[int, waves.Cost]]:
    """The costs of the model of ladder/call/waves.py that fit a table best: least squares of relative errors,
    none below 0.
    """
    kinds = [(rung, int(d)) for rung in waves.COSTS for d in sorted(table.d.unique())]
    found: dict[str, dict[int, waves.Cost]] = {}
    for rung, d in kinds:
        rows = table[(table.contender == discover().today(rung)) & (table.d == d)]
        loads = np.array([waves.load(problem_of(row), row.sm_count, rung) for row in rows.itertuples()])
        found.setdefault(rung, {})[d] = waves.Cost(*_not_negative(loads / rows.us.to_numpy()[:, None]))
    return found


def problem_of(row: Any) -> Problem:
    b, h, h_kv, n, d = (int(size) for size in (row.B, row.H, row.Hkv, row.N, row.d))
    return Problem(b, h, n, n, d, kv_heads=h_kv, dtype="bf16", is_causal=bool(row.causal))


def _not_negative(shares: Any) -> list[float]:
    """The costs whose sums with these weights come nearest to 1: of each set of them that is not 0, the least
    squares.
    """
    count = shares.shape[1]
    best, error = [0.0] * count, float("inf")
    for size in range(1, count + 1):
        for chosen in itertools.combinations(range(count), size):
            costs = np.zeros(count)
            costs[[*chosen]] = np.linalg.lstsq(shares[:, chosen], np.ones(len(shares)), rcond=None)[0]
            off = float(((shares @ costs - 1) ** 2).sum())
            if off < error and (costs >= 0).all():
                best, error = [round(float(cost), 3) for cost in costs], off
    return best


def first_output(outputs: Any) -> Tensor:
    """o, apart from what later calls write."""
    found = outputs[0].clone()
    assert isinstance(found, Tensor)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=420.0, help="no problem is begun after that")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    began = time.monotonic()
    problems = [*small(), *drawn()]
    rungs, where = Rungs(RUNGS, problems), measured_on()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for number, problem in enumerate(problems):
        if time.monotonic() - began > options.seconds:
            print(f"stopped before problem {number} of {len(problems)}")
            break
        rows += [{**where, **row} for row in measured(rungs, problem, options.rounds)]
        pd.DataFrame(rows).to_csv(options.out / "small_grids.csv", index=False, float_format="%.2f")
        torch.cuda.empty_cache()
    print(f"{len(rows)} rows in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
