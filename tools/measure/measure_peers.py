#!/usr/bin/env python3
"""Measures the fastest rungs of attention and of its gradients beside other implementations of both.

    python3 -m tools.measure.measure_peers --out results/h200 [--rounds 9] [--seconds 400]
        [--pass forward backward] [--rungs STAGE ...] [--fa3-library PATH]

Writes ``peers.csv`` after each problem: one row per contender, with the columns of ``side_by_side.py``: two
times, watts and clocks, and the largest error of two heads.

Contenders: the rungs; torch's scaled_dot_product_attention by its backends cuDNN and flash; FlexAttention,
compiled; FlashAttention-3 where ``flash_attn_interface`` can be imported, and FlashAttention-4 where
``flash_attn.cute`` can. Their versions are in the column ``version``. ``--fa3-library`` names the operator
library of FlashAttention-3, ``flash_attn_3/_C.so`` of its package or of xformers, and calls its operators
``fwd`` and ``bwd`` instead of the interface. A ``libcudart.so`` beside the library is loaded before it.
Needs a GPU of sm_90, nvcc and a Python with torch, pandas and rich; the package need not be installed.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from ladder.errors import LadderError
from ladder.operations import BackwardProblem, Problem, operation_of
from ladder.operations.attention.baselines import attend
from ladder.stages import discover
from tools.measure.attention_inputs import make_inputs
from tools.measure.fa3_library import FlashAttention3
from tools.measure.side_by_side import (
    Checker,
    Contender,
    Peer,
    Rungs,
    Timer,
    add_options,
    measure_each,
    measured,
    of_function,
    version_of,
)

#: What is measured by default, beside the peers.
RUNGS = tuple(
    map(
        discover().today,
        ("v11b", "v12", "v12c", "b4g", "b5", "b5b", "b5d", "b5e", "b5f", "b5g", "b6"),
    )
)


def problems(passes: Sequence[str]) -> Iterator[Problem]:
    """Both masks at three lengths; other head dims, dtypes and groups of heads at the middle one."""
    base = Problem(4, 16, 4096, 4096, 128, dtype="bf16")
    sizes = [replace(base, head_dim=d) for d in (128, 64)]
    sizes += [replace(one, batch=1, q_len=16384, kv_len=16384) for one in sizes]
    short = [replace(one, batch=16, q_len=1024, kv_len=1024) for one in sizes[:2]]
    forward = [*sizes, replace(base, dtype="f16"), replace(base, head_dim=256), *short]
    shapes = {"forward": forward, "backward": [*sizes, *short]}
    group = replace(base, heads=32, kv_heads=8, is_causal=True)
    for name in passes:
        masked = [
            replace(one, is_causal=is_causal)
            for one, is_causal in itertools.product(shapes[name], (False, True))
        ]
        for one in [*masked, group]:
            yield one if name == "forward" else BackwardProblem(**asdict(one))


def torch_contenders(problem: Problem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
    cudnn = f"cuDNN {torch.backends.cudnn.version()}"
    for name, backend, version in (
        ("torch cuDNN", SDPBackend.CUDNN_ATTENTION, cudnn),
        ("torch flash", SDPBackend.FLASH_ATTENTION, ""),
    ):
        yield name, version, partial(of_function, partial(attend, problem, backend), problem, inputs)


def flex_contender(problem: Problem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
    """FlexAttention, for the problems whose compilation is worth its time."""
    if problem.q_len != 4096 or problem.head_dim > 128 or problem.dtype != "bf16":
        return
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled: Any = torch.compile(flex_attention, dynamic=False)
    length, gqa = problem.q_len, problem.heads != problem.num_kv_heads
    mask = (
        create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length)
        if problem.is_causal
        else None
    )

    def attend_in_blocks(*qkv: Tensor) -> Tensor:
        return compiled(*qkv, block_mask=mask, enable_gqa=gqa)

    yield "FlexAttention", "", partial(of_function, attend_in_blocks, problem, inputs)


#: Module and package.
FLASH = {
    "FlashAttention-3": ("flash_attn_interface", "flash_attn_3"),
    "FlashAttention-4": ("flash_attn.cute", "flash-attn-4"),
}


def flash_contenders(
    problem: Problem, inputs: Mapping[str, Any], names: Sequence[str] = (*FLASH,)
) -> Iterator[Contender]:
    """Those of ``names`` that can be imported."""
    for name in names:
        module, package = FLASH[name]
        with suppress(ImportError):
            interface = importlib.import_module(module)

            def flash_attend(*qkv: Tensor, interface: ModuleType = interface) -> Tensor:
                o = interface.flash_attn_func(*qkv, causal=problem.is_causal)
                return o[0] if isinstance(o, tuple) else o

            version = version_of(interface, package)
            yield name, version, partial(of_function, flash_attend, problem, inputs, heads_last=True)


PEERS: dict[str, Peer] = {"torch": torch_contenders, "flex": flex_contender, "flash": flash_contenders}


def chosen_peers(names: Sequence[str], fa3_library: Path | None) -> list[Peer]:
    """The peers of these names. A library of FlashAttention-3 takes the place of its interface."""
    chosen = {name: PEERS[name] for name in names}
    if fa3_library is None:
        return [*chosen.values()]
    if "flash" in chosen:
        chosen["flash"] = partial(flash_contenders, names=("FlashAttention-4",))
    return [*chosen.values(), FlashAttention3(fa3_library).contenders]


def checker(problem: Problem, inputs: Mapping[str, Any]) -> Checker:
    """Without dk and dv of grouped heads if they are sums over query heads that are not checked."""
    part, _ = operation_of(problem).part(problem, inputs)
    assert isinstance(part, Problem)
    whole_groups = part.heads * problem.num_kv_heads == part.num_kv_heads * problem.heads
    return Checker(problem, inputs, () if whole_groups else ("dk", "dv"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, RUNGS)
    parser.add_argument("--peers", nargs="+", choices=[*PEERS], default=[*PEERS], metavar="PEER")
    parser.add_argument(
        "--fa3-library", type=Path, metavar="PATH", help="FlashAttention-3's _C.so, instead of its interface"
    )
    options = parser.parse_args()
    began = time.monotonic()
    try:
        peers = chosen_peers(options.peers, options.fa3_library)
        chosen = [*problems(options.passes)]
        rungs = Rungs(options.rungs, chosen)
        timer = Timer.here(options.power)

        def rows_of(problem: Problem) -> list[dict[str, Any]]:
            inputs = make_inputs(problem)
            contenders = [rungs.contenders, *peers]
            return measured(problem, inputs, contenders, checker(problem, inputs), timer, options.rounds)

        passed = measure_each(chosen, rows_of, options.out / "peers.csv", began, options.seconds)
    except LadderError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
