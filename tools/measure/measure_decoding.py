#!/usr/bin/env python3
"""Measures the decoding rungs beside a kernel that only reads as many bytes, and beside torch and others.

    python3 -m tools.measure.measure_decoding --out results/h200 [--seconds 220] [--case NAME ...]

Writes ``decoding.csv``, one row per case and contender, after each case: the time of a call in microseconds
(median), the bytes of keys and values that the sequences have, counted once, over that time, and its share of
what ``read_cache.cu`` reads in the same run. A call is a node, or several, of a CUDA graph, with all kernels
that it launches. A graph has calls on different caches, which together exceed the L2 cache several times, so
every call reads from memory. ``error`` is the largest error of the first sequence's o against float64.

Contenders: the rungs; torch's scaled_dot_product_attention with enable_gqa by its backends; FlexAttention,
compiled; ``flash_attn_with_kvcache`` of FlashAttention-3 where flash_attn_interface can be imported; and
FlashInfer's decoding on tensor cores where flashinfer can. Its planning on the host, once per batch, is not
in its time. A dense cache is to FlashInfer a cache with one page per sequence.
``d1 unsplit`` is d1_split_kv with num_splits = 1. ``same_bits`` says of the last rung that takes the case
whether the last sequence alone has the bits that it has in the batch. Cases in e4m3 have caches of 8 bits,
with half the bytes. Needs a GPU of sm_80 or later, nvcc and a Python with
torch, pandas and rich; the package need not be installed.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = Path(__file__).resolve().parent

from ladder.compile import build_all, toolchain  # noqa: E402
from ladder.errors import LadderError  # noqa: E402
from ladder.operations import DecodingProblem, get_operation  # noqa: E402
from ladder.run.backends import get_backend  # noqa: E402
from ladder.stages import Stage, discover  # noqa: E402
from tools.bench.provenance import measured_on  # noqa: E402

RUNGS = (
    "d1_split_kv",
    "d2_packed",
    "d3_paged",
    "d4_one_launch",
    "d5_variants",
    "d6_fp8_cache",
)
LLAMA = DecodingProblem(32, 32, 1, 4096, 128, kv_heads=8, dtype="bf16")
CASES = {
    "B32 4k": LLAMA,
    "B1 128k": replace(LLAMA, batch=1, kv_len=131072),
    "B8 8k": replace(LLAMA, batch=8, kv_len=8192),
    "skewed": replace(LLAMA, kv_len=32768, lengths=(32768, *(512,) * 31)),
    "B32 4k pages of 16": replace(LLAMA, page_size=16),
    "B32 4k pages of 64": replace(LLAMA, page_size=64),
    "B32 4k pages of 256": replace(LLAMA, page_size=256),
    "skewed pages of 64": replace(LLAMA, kv_len=32768, lengths=(32768, *(512,) * 31), page_size=64),
    "B8 8k 4 queries": replace(LLAMA, batch=8, kv_len=8192, q_len=4, is_causal=True),
    "B1 8k": replace(LLAMA, batch=1, kv_len=8192),
    "B128 2k": replace(LLAMA, batch=128, kv_len=2048),
    "B32 4k no groups": replace(LLAMA, heads=8),
    "B32 4k groups of 16": replace(LLAMA, heads=128),
}
CASES |= {f"{name} e4m3": replace(problem, e4m3=True) for name, problem in CASES.items()}
#: Those of which all of torch's and others' are measured.
COMPARED = ("B32 4k", "B1 128k", "B8 8k")
#: The bytes that calls on different caches read together: four times the L2 cache of an H200.
ROTATED_BYTES = 200 << 20
REPLAYS = 15
GRAPH_US = 3000.0

Call = Callable[[int], Any]


@dataclass(frozen=True)
class Case:
    """A problem on the GPU, several times over."""

    problem: DecodingProblem
    copies: list[dict[str, Any]]

    @staticmethod
    def of(problem: DecodingProblem) -> Case:
        count = max(2, math.ceil(ROTATED_BYTES / problem.cache_bytes))
        return Case(problem, [_inputs(problem, seed) for seed in range(count)])


def _inputs(problem: DecodingProblem, seed: int) -> dict[str, Any]:
    """Inputs made on the GPU: random bits of the size that counts, the pages in random order."""
    from ladder.operations.decoding.inputs import block_table, page_count

    generator = torch.Generator("cuda").manual_seed(seed)
    operation = get_operation("decoding")

    def draw(shape: Any) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    shapes = operation.input_shapes(problem)
    if problem.page_size:
        assert shapes["k_cache"][0] == page_count(problem)
    kv_dtype = torch.float8_e4m3fn if problem.e4m3 else torch.bfloat16
    return {
        "q": draw(shapes["q"]),
        **{name: draw(shapes[name]).to(kv_dtype) for name in ("k_cache", "v_cache")},
        "seqused_k": torch.tensor(problem.all_lengths, dtype=torch.int32, device="cuda"),
        "block_table": block_table(problem).cuda() if problem.page_size else None,
        "sinks": None,
        **{name: _descale(problem, generator) for name in ("k_descale", "v_descale")},
    }


def _descale(problem: DecodingProblem, generator: torch.Generator) -> Tensor | None:
    if not problem.e4m3:
        return None
    return torch.rand(problem.num_kv_heads, generator=generator, device="cuda") + 0.5


class Rungs:
    """The rungs, built for these problems alone."""

    def __init__(self, problems: list[DecodingProblem]) -> None:
        here = get_backend("cuda")
        ladder = discover()
        suiting = {name: [*filter(ladder[name].suits, problems)] for name in RUNGS}
        self.stages: dict[str, Stage] = {
            name: ladder[name].narrowed(taken) for name, taken in suiting.items() if taken
        }
        targets = {name: here.target(stage, None) for name, stage in self.stages.items()}
        options = {name: stage.chosen_options({}) for name, stage in self.stages.items()}
        self._loaded = {}
        for name, built in build_all([*self.stages.values()], targets, options).items():
            if isinstance(built, LadderError):
                raise built
            self._loaded[name] = here.loaded(built, targets[name], torch.device("cuda"))

    def call(self, name: str, case: Case) -> Call:
        """The call on the copy of a number; it returns o."""
        operation, problem = get_operation("decoding"), case.problem
        outputs = {
            one.name: torch.empty(
                one.shape, dtype=torch.float32 if one.dtype == "f32" else torch.bfloat16, device="cuda"
            )
            for one in operation.outputs(problem)
        }
        first = case.copies[0]
        launch = self._loaded[name]([*first], [*outputs], operation.arguments(problem, {**first, **outputs}))

        def run(number: int) -> Tensor:
            launch([*case.copies[number].values(), *outputs.values()])
            return outputs["o"]

        return run

    def calls(self, case: Case) -> Iterator[tuple[str, Call]]:
        for name, stage in self.stages.items():
            if stage.suits(case.problem):
                yield name, self.call(name, case)
        unsplit = replace(case.problem, num_splits=1)
        if RUNGS[0] in self.stages and self.stages[RUNGS[0]].suits(unsplit):
            yield "d1 unsplit", self.call(RUNGS[0], Case(unsplit, case.copies))

    def has_same_bits(self, name: str, case: Case) -> bool:
        """Whether a rung's o of the last sequence alone has the bits that it has in the batch."""
        problem, copy = case.problem, case.copies[0]
        whole = self.call(name, case)(0)[-1:].clone()
        one = replace(problem, batch=1, lengths=None if problem.lengths is None else problem.lengths[-1:])
        cache = slice(None) if problem.page_size else slice(-1, None)
        alone = {
            **copy,
            "q": copy["q"][-1:],
            "k_cache": copy["k_cache"][cache],
            "v_cache": copy["v_cache"][cache],
            "seqused_k": copy["seqused_k"][-1:],
            "block_table": None if copy["block_table"] is None else copy["block_table"][-1:],
        }
        return torch.equal(whole, self.call(name, Case(one, [alone]))(0))


def read_only(case: Case) -> tuple[Call, int]:
    """The call that reads as many bytes as the case's keys and values, and the number of its copies."""
    nvcc = toolchain.system_nvcc() or toolchain.pinned_nvcc()
    library = Path(tempfile.gettempdir()) / "read_cache.so"
    if not library.exists():
        flags = ["-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-o", str(library)]
        subprocess.run([str(nvcc.path), *flags, str(HERE / "read_cache.cu")], check=True)
    read = ctypes.CDLL(str(library)).read_cache
    size = case.problem.cache_bytes
    data = [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in case.copies]
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")

    def call(number: int) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointer, at = (ctypes.c_void_p(x.data_ptr()) for x in (data[number], sink))
        if read(pointer, ctypes.c_size_t(size), at, stream):
            raise RuntimeError("read_cache failed")

    return call, len(data)


def peers(case: Case, flex: bool) -> Iterator[tuple[str, Call]]:
    """torch's attention, by backend, for dense caches of equal lengths; the others for all of 16 bits."""
    problem = case.problem
    if problem.e4m3:
        return
    if not problem.page_size and problem.lengths is None and problem.q_len == 1:
        for backend in (
            *(SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION),
            SDPBackend.EFFICIENT_ATTENTION,
        ):
            yield f"torch {backend.name.removesuffix('_ATTENTION').lower()}", torch_call(case, backend)
        if flex:
            yield "FlexAttention", flex_call(case)
    with suppress(ImportError):
        yield "FlashAttention-3", fa3_call(case)
    if problem.q_len == 1:
        with suppress(ImportError):
            yield "FlashInfer", flashinfer_call(case)


def torch_call(case: Case, backend: SDPBackend) -> Call:
    """torch's attention with this backend, on the copy of a number."""

    def call(number: int) -> Tensor:
        one = case.copies[number]
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                one["q"], one["k_cache"], one["v_cache"], enable_gqa=case.problem.heads > 8
            )

    return call


def flex_call(case: Case) -> Call:
    """torch's compiled FlexAttention, on the copy of a number."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)

    def call(number: int) -> Any:
        one = case.copies[number]
        return compiled(one["q"], one["k_cache"], one["v_cache"], enable_gqa=True)

    return call


def fa3_call(case: Case) -> Call:
    """FlashAttention-3's call on the copy of a number. Raises :class:`ImportError` without its package."""
    from flash_attn_interface import flash_attn_with_kvcache

    # (B, N, H, d), and the same rows with the heads side by side
    rows = [
        {name: one[name].transpose(1, 2).contiguous() for name in ("q", "k_cache", "v_cache")}
        for one in case.copies
    ]

    def call(number: int) -> Tensor:
        one, given = rows[number], case.copies[number]
        o = flash_attn_with_kvcache(
            one["q"],
            one["k_cache"],
            one["v_cache"],
            cache_seqlens=given["seqused_k"],
            page_table=given["block_table"],
            causal=case.problem.is_causal,
            pack_gqa=True,
        )
        return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

    return call


def flashinfer_call(case: Case) -> Call:
    """FlashInfer's call on the copy of a number, planned. Raises :class:`ImportError` without FlashInfer."""
    import flashinfer

    problem, copies = case.problem, case.copies
    page_size = problem.page_size or problem.kv_len
    lengths = torch.tensor(problem.all_lengths, dtype=torch.int32)
    counts = (lengths + page_size - 1) // page_size
    starts = F.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))

    table = copies[0]["block_table"]  # all copies have the same, so one plan serves them
    if table is None:
        table = torch.arange(problem.batch, dtype=torch.int32, device="cuda")[:, None]
    pages = torch.cat([row[:count] for row, count in zip(table, counts, strict=True)])
    workspace = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=True)
    wrapper.plan(
        *(starts.cuda(), pages, ((lengths - 1) % page_size + 1).cuda()),
        *(problem.heads, problem.num_kv_heads, problem.head_dim, page_size),
        q_data_type=torch.bfloat16,
    )

    def call(number: int) -> Tensor:
        one = copies[number]
        o = wrapper.run(one["q"][:, :, 0], (one["k_cache"], one["v_cache"]))
        return o[:, :, None]

    return call


def microseconds(call: Call, copies: int) -> float:
    """The median time of a call in a CUDA graph of calls on all copies in turn."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for number in range(copies):
            call(number)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for number in range(copies):
            call(number)
        end.record()
    stream.synchronize()
    about = start.elapsed_time(end) * 1e3 / copies
    rounds = max(1, round(GRAPH_US / about / copies))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(rounds):
            for number in range(copies):
                call(number)
    times = []
    for _ in range(REPLAYS):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / (rounds * copies))
    return statistics.median(times[2:])


def error(case: Case, o: Tensor) -> float:
    """max |o - exact| of the first sequence and kv head."""
    from ladder.operations.decoding.inputs import keys_of

    problem, copy = case.problem, case.copies[0]
    length, group = problem.all_lengths[0], problem.heads // problem.num_kv_heads
    k, v = (
        keys_of(copy[f"{x}_cache"], copy["block_table"], 0, length, copy[f"{x}_descale"])[0].double()
        for x in "kv"
    )
    s = copy["q"][0, :group].double() @ k.T * problem.softmax_scale
    if problem.is_causal:
        i, j = torch.arange(problem.q_len)[:, None], torch.arange(length)
        s.masked_fill_((j > i + length - problem.q_len).cuda(), -math.inf)
    return float((torch.softmax(s, -1) @ v - o[0, :group].double()).abs().max())


def measured(name: str, rungs: Rungs, where: dict[str, str], flex: bool) -> list[dict[str, Any]]:
    """The rows of a case: the read alone first."""
    case = Case.of(CASES[name])
    size = case.problem.cache_bytes
    read, copies = read_only(case)
    read_us = microseconds(read, copies)
    del read
    torch.cuda.empty_cache()
    problem = get_operation("decoding").row(case.problem)
    last = [rung for rung, stage in rungs.stages.items() if stage.suits(case.problem)][-1]
    same = {"same_bits": rungs.has_same_bits(last, case)}
    found = [("read only", read_us, math.nan)]
    for contender, call in [*rungs.calls(case), *peers(case, flex)]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says why a backend does not take it
                off = error(case, call(0))
                found.append((contender, microseconds(call, len(case.copies)), off))
        except (RuntimeError, LadderError) as failure:
            print(f"{name}: {contender}: {str(failure).splitlines()[0]}", file=sys.stderr)
    return [
        {
            **where,
            "case": name,
            "contender": contender,
            **problem,
            "cache_bytes": size,
            "time_us": time_us,
            "tb_per_s": size / time_us * 1e-6,
            "of_read": read_us / time_us,
            "error": off,
            **(same if contender == last else {}),
        }
        for contender, time_us, off in found
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=220.0, help="no case begins later than this")
    parser.add_argument("--case", nargs="+", choices=[*CASES], default=[*CASES], metavar="NAME")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        rungs = Rungs([CASES[name] for name in options.case])
        where = measured_on()
        print(f"built after {time.monotonic() - began:.0f} s", flush=True)
        rows: list[dict[str, Any]] = []
        for name in options.case:
            if time.monotonic() - began > options.seconds:
                print(f"{name} is left out: the time is over", file=sys.stderr)
                continue
            rows += measured(name, rungs, where, flex=name in COMPARED)
            torch.cuda.empty_cache()
            frame = pd.DataFrame(rows)
            options.out.mkdir(parents=True, exist_ok=True)
            frame.to_csv(options.out / "decoding.csv", index=False, float_format="%.6g")
            shown = frame[frame.case == name][["contender", "time_us", "tb_per_s", "of_read", "error"]]
            print(f"\n{name} ({time.monotonic() - began:.0f} s)\n{shown.to_string(index=False)}", flush=True)
    except LadderError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
