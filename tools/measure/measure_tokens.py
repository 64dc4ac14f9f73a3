#!/usr/bin/env python3
"""Measures how many tokens a second the attention of a model of Llama 8B's shape writes, beside torch's.

    python3 -m tools.measure.measure_tokens --out results/h200

Writes ``tokens.csv``, one row per batch, number of keys and contender. The model is 32 layers of projections
to 32 query heads and 8 key heads of 128, attention over the cache, and a projection back, in bf16 with
random weights, without the layers between. A step takes a token of each sequence, stores its key and value,
and is one CUDA graph. Contenders: ``ladder.decode_attention``, and torch's scaled_dot_product_attention with
enable_gqa by each of its backends. ``step_us`` is the median of 20 replays; ``difference`` is the largest
from the first contender's output, over that one's largest value. Needs a GPU of sm_80 or later, nvcc and a
Python with torch, pandas and rich; the package need not be installed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import ladder
from tools.bench.provenance import measured_on

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 32, 32, 8, 128
HIDDEN = HEADS * HEAD_DIM
#: Sequences and keys of each.
CASES = ((1, 8192), (8, 8192), (32, 4096))
REPLAYS = 20

#: o of q, the caches and the lengths.
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Layer:
    """Its weights, and the cache (B, Hkv, M, d) of its keys and of its values."""

    to_qkv: Tensor
    to_output: Tensor
    k_cache: Tensor
    v_cache: Tensor


def layer_of(batch: int, keys: int) -> Layer:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    cache = (batch, KV_HEADS, keys, HEAD_DIM)
    scale = HIDDEN**-0.5
    to_qkv = draw(HIDDEN + 2 * KV_HEADS * HEAD_DIM, HIDDEN) * scale
    return Layer(to_qkv, draw(HIDDEN, HIDDEN) * scale, draw(*cache), draw(*cache))


def step(x: Tensor, layers: list[Layer], lengths: Tensor, attend: Attend) -> Tensor:
    """A token of each sequence, x (B, hidden), through all layers; its key is the last of `lengths`."""
    rows = torch.arange(len(x), device="cuda")
    for layer in layers:
        parts = F.linear(x, layer.to_qkv).unflatten(1, (-1, HEAD_DIM))
        q, k, v = parts.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        layer.k_cache[rows, :, lengths - 1] = k
        layer.v_cache[rows, :, lengths - 1] = v
        o = attend(q[:, :, None], layer.k_cache, layer.v_cache, lengths)
        x = x + F.linear(o.flatten(1), layer.to_output)
    return x


def of_ladder(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor) -> Tensor:
    return ladder.decode_attention(q, k_cache, v_cache, lengths)[0]


def of_torch(backend: SDPBackend) -> Attend:
    def attend(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k_cache, v_cache, enable_gqa=True)

    return attend


CONTENDERS: dict[str, Attend] = {
    "ladder.decode_attention": of_ladder,
    "torch flash": of_torch(SDPBackend.FLASH_ATTENTION),
    "torch cudnn": of_torch(SDPBackend.CUDNN_ATTENTION),
}


def measured(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """The median microseconds of a replay of the graph, and its output."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        output = run()
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times), output.float()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    where, rows = measured_on(), []
    torch.manual_seed(0)
    for batch, keys in CASES:
        layers = [layer_of(batch, keys) for _ in range(LAYERS)]
        x = torch.randn(batch, HIDDEN, device="cuda", dtype=torch.bfloat16)
        lengths = torch.full((batch,), keys, dtype=torch.int32, device="cuda")
        first: Tensor | None = None
        for name, attend in CONTENDERS.items():
            with torch.no_grad():
                step_us, output = measured(partial(step, x, layers, lengths, attend))
            first = output if first is None else first
            row: dict[str, Any] = {"B": batch, "M": keys, "contender": name, "step_us": step_us}
            row["tokens_per_s"] = batch / step_us * 1e6
            row["difference"] = float((output - first).abs().max() / first.abs().max())
            rows.append({**where, **row})
            print(f"{batch:3} x {keys:,} {name:24} {row['tokens_per_s']:9,.0f} tokens/s", flush=True)
            options.out.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(rows).to_csv(options.out / "tokens.csv", index=False, float_format="%.6g")
    return 0


if __name__ == "__main__":
    sys.exit(main())
