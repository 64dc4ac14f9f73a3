#!/usr/bin/env python3
"""Measures attention over several GPUs beside one GPU and torch's own context_parallel, under a causal mask.

    torchrun --nproc-per-node 2 -m tools.measure.measure_distributed \
        link times check spans model --out results/h200
    python3 -m tools.measure.measure_distributed plan --tflops 600 --link 300 --network 50

Any of ``link``, ``times``, ``check``, ``spans`` and ``model``, in the order given. Their rows are in
``distributed.csv`` in ``--out``, each as soon as it is measured; the column ``what`` names the measurement.

``times`` has one row per length, pass and contender: "one" is the whole problem on rank 0,
with the highest rungs, and "torch one" the same with cuDNN; "torch allgather" and "torch alltoall" are
torch's context_parallel with its two ways to rotate; the others are the schedules. ``scaling`` is the time of
"one", for torch's of "torch one", over that of the slowest rank. Bursts of calls are timed: the host is ahead
of the GPU, as in training. ``check`` compares the schedules' o and gradients with
what one GPU computes, at the last length. ``spans`` has what each rank did when, from
CUDA events; tools/measure/pictures.py draws them. ``link`` has the bandwidth of a swap
between neighbours by size. ``model`` trains a model of four layers for a step on all
ranks and on one, at the length ``--model-rows``, and has the largest memory of a rank; where a rank has too
little, ms is empty and the memory is what it had until then. ``plan`` prints by formula what a step of the
zigzag takes on 2, 8 and 64 GPUs, given the speed of a GPU, and the bandwidth of its link within a host and
between hosts.

Any number of ranks, one GPU each. On CPUs, with gloo and the emulator, ``--rows 64 --model-rows 64 --heads 4
--kv-heads 2 --repeats 1`` tries all of it; times there mean nothing.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import ladder.call.distributed as several
from ladder import attention
from ladder.errors import LadderError
from tools.bench import provenance

PATIENCE = timedelta(minutes=2)
GIBIBYTE = 2**30


def main() -> int:
    options = _options()
    if options.what == ["plan"]:
        print(plan(options).to_string(index=False))
        return 0
    try:
        device = _join()
        where = provenance.measured_on() if device.type == "cuda" else {}
        measurements = dict(zip(_WHAT, (times, check, spans, link, model), strict=True))
        for what in options.what:
            rows: list[dict[str, Any]] = []
            for row in measurements[what](options, device):
                rows.append({**where, "what": what, **row})
                if dist.get_rank() == 0:
                    print(*(f"{name}={value}" for name, value in row.items()), flush=True)
                if dist.get_rank() == 0 and options.out:
                    _write(pd.DataFrame(rows), options.out / FILE)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+", choices=(*_WHAT, "plan"))
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=int, nargs="+", default=[65536, 32768], metavar="N")
    parser.add_argument("--model-rows", type=int, default=262144, metavar="N", help="of model")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--schedules", nargs="+", choices=several.SCHEDULES, default=[*several.SCHEDULES])
    parser.add_argument("--stage", default="auto")
    parser.add_argument("--backward", default="auto")
    parser.add_argument("--repeats", type=int, default=5, help="bursts of calls that are timed")
    parser.add_argument("--burst", type=int, default=3, help="of times: calls of a burst")
    parser.add_argument(
        "--tflops", type=float, default=600.0, help="of plan: a GPU's speed in the forward pass"
    )
    parser.add_argument("--link", type=float, default=300.0, help="of plan: GB/s to the next GPU of a host")
    parser.add_argument("--network", type=float, default=50.0, help="of plan: GB/s to a GPU of another host")
    return parser.parse_args()


def _join() -> torch.device:
    """Joins the group. Raises :class:`LadderError` for a rank without a GPU where there are GPUs."""
    local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if not gpus:
        dist.init_process_group("gloo", timeout=PATIENCE)
        return torch.device("cpu")
    if local >= gpus:
        raise LadderError(
            f"rank {os.environ['RANK']} has no GPU: this host has {gpus}, and {local} before it have them",
            f"Launch with --nproc-per-node {gpus}.",
        )
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=PATIENCE, device_id=device)
    return device


FILE = "distributed.csv"
#: What is measured: the column ``what`` of the file.
_WHAT = ("times", "check", "spans", "link", "model")


def read(file: Path, what: str) -> pd.DataFrame:
    """The rows of one measurement, and their columns."""
    rows = pd.read_csv(file, dtype=str)
    own = rows[rows["what"] == what].dropna(axis="columns", how="all")
    return pd.read_csv(io.StringIO(own.to_csv(index=False)))


def _write(measured: pd.DataFrame, file: Path) -> None:
    """Writes rows of one measurement; those of others that the file has stay."""
    if file.is_file():
        before = pd.read_csv(file, dtype=str)
        measured = pd.concat([before[~before["what"].isin(measured["what"])], measured])
    measured.to_csv(file, index=False)


def _tensors(options: argparse.Namespace, rows: int, device: torch.device) -> tuple[Tensor, ...]:
    """q, k, v and the gradient of o, the same on each rank; bf16."""
    generator = torch.Generator(device).manual_seed(0)
    heads = (options.heads, options.kv_heads, options.kv_heads, options.heads)
    return tuple(
        torch.randn(1, h, rows, options.head_dim, device=device, dtype=torch.bfloat16, generator=generator)
        for h in heads
    )


Call = Callable[[], object]


def _slowest(run: Call, device: torch.device, repeats: int, burst: int, warm_up: int = 2) -> float:
    """The time of a call in ms on the slowest rank: the median of so many bursts of calls, after some calls
    that are not counted.
    """
    found = []
    for calls in (warm_up, *(burst,) * repeats):
        if device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
        began = time.perf_counter()
        for _ in range(calls):
            run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        elapsed = torch.tensor([1e3 * (time.perf_counter() - began) / calls], device=device)
        dist.all_reduce(elapsed, dist.ReduceOp.MAX)
        found.append(float(elapsed))
    return median(found[1:])


def _passes(compute: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> dict[str, Call]:
    """The forward pass, and both passes, of a function of q, k and v."""
    *inputs, d_o = tensors

    def both() -> None:
        leaves = [x.detach().requires_grad_() for x in inputs]
        torch.autograd.grad(compute(*leaves), leaves, d_o)

    def forward() -> None:
        with torch.no_grad():
            compute(*inputs)

    return {"forward": forward, "both": both}


def _ours(options: argparse.Namespace, schedule: str, rows: int, device: torch.device) -> dict[str, Call]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    shards = tuple(several.shard(x, rank, ranks, schedule) for x in _tensors(options, rows, device))
    choices = {"is_causal": True, "enable_gqa": True, "stage": options.stage, "backward": options.backward}
    return _passes(lambda q, k, v: several.attention(q, k, v, schedule=schedule, **choices)[0], shards)


def _one(options: argparse.Namespace, rows: int, device: torch.device) -> dict[str, Call]:
    """The whole problem on rank 0, while the others wait."""
    if dist.get_rank():
        return _NOTHING
    choices = {"is_causal": True, "enable_gqa": True, "stage": options.stage, "backward": options.backward}
    return _passes(lambda q, k, v: attention(q, k, v, **choices)[0], _tensors(options, rows, device))


def _torch_one(options: argparse.Namespace, rows: int, device: torch.device) -> dict[str, Call]:
    """The same by torch, with cuDNN."""
    if dist.get_rank():
        return _NOTHING

    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if device.type == "cuda" else nullcontext():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return _passes(compute, _without_groups(options, _tensors(options, rows, device)))


def _without_groups(options: argparse.Namespace, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """K and V repeated for the heads that share them: context_parallel has no GQA."""
    q, k, v, d_o = tensors
    group = options.heads // options.kv_heads
    return q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), d_o


#: What a rank does that only waits.
_NOTHING: dict[str, Call] = {"forward": lambda: None, "both": lambda: None}


def _torch(
    options: argparse.Namespace, method: str, rows: int, device: torch.device
) -> Iterator[tuple[str, Call, AbstractContextManager[Any]]]:
    """torch's context_parallel, which shards in place: cuDNN forward, its flash attention for gradients."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    set_rotate_method(method)
    tensors = list(_without_groups(options, _tensors(options, rows, device)))
    with context_parallel(mesh, buffers=tensors, buffer_seq_dims=[2] * 4):
        for name, backend in (("forward", SDPBackend.CUDNN_ATTENTION), ("both", SDPBackend.FLASH_ATTENTION)):
            calls = _passes(
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), tuple(tensors)
            )
            yield name, calls[name], sdpa_kernel(backend) if device.type == "cuda" else nullcontext()


def times(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per length, contender and pass."""
    ranks = dist.get_world_size()
    of_one: dict[tuple[int, str, bool], float] = {}

    def measured(
        rows: int, contender: str, name: str, run: Call, sent: tuple[int, int] | None = None
    ) -> dict[str, Any]:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        ms = _slowest(run, device, options.repeats, options.burst)
        one = of_one.setdefault((rows, name, contender.startswith("torch")), ms)
        return {
            "bursts": options.repeats,
            "burst": options.burst,
            "ranks": ranks,
            "H": options.heads,
            "Hkv": options.kv_heads,
            "d": options.head_dim,
            "N": rows,
            "contender": contender,
            "pass": name,
            "ms": ms,
            "scaling": one / ms,
            "sent_bytes": sent and (sent[0] if name == "forward" else sum(sent)),
            "peak_gib": torch.cuda.max_memory_allocated() / GIBIBYTE if device.type == "cuda" else None,
        }

    for rows in options.rows:
        for name, run in _one(options, rows, device).items():
            yield measured(rows, "one", name, run)
        for schedule in options.schedules:
            sent = several.SCHEDULES[schedule].bytes_sent(
                _sizes(options, rows, ranks, schedule), dist.get_rank()
            )
            for name, run in _ours(options, schedule, rows, device).items():
                yield measured(rows, schedule, name, run, sent)
    yield from _times_of_torch(options, device, measured)


def _times_of_torch(
    options: argparse.Namespace, device: torch.device, measured: Callable[..., dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """torch on one GPU, and its context_parallel on all of them."""
    methods = ("allgather", "alltoall") if device.type == "cuda" else ()
    for rows in options.rows:
        for name, run in _torch_one(options, rows, device).items():
            yield measured(rows, "torch one", name, run)
        try:
            for method in methods:
                for name, run, backend in _torch(options, method, rows, device):
                    with backend:
                        yield measured(rows, f"torch {method}", name, run)
        except (RuntimeError, NotImplementedError) as error:  # no backend of torch takes the problem
            print(f"torch's context_parallel: {error}"[:300], file=sys.stderr)
            break  # its SDPA stays that of several GPUs


def _sizes(options: argparse.Namespace, rows: int, ranks: int, schedule: str) -> several.Sizes:
    lengths = several.shard_lengths(rows, ranks, schedule)
    return several.Sizes(1, options.heads, options.kv_heads, options.head_dim, lengths, 2, True)


def spans(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per span of each rank, of one forward and backward pass at the first length."""
    for schedule in options.schedules:
        run = _ours(options, schedule, options.rows[0], device)["both"]
        run()
        dist.barrier()
        with several.recording(device) as own:
            run()
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, own)
        for rank, of_rank in enumerate(gathered):
            for one in of_rank:
                where = {"N": options.rows[0], "contender": schedule, "rank": rank}
                yield {**where, "kind": one.kind, "begin": one.begin, "end": one.end}


def check(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per schedule and tensor: its largest difference from what each GPU computes alone, at the last
    length.
    """
    rank, ranks, rows = dist.get_rank(), dist.get_world_size(), options.rows[-1]
    choices = {"is_causal": True, "enable_gqa": True, "stage": options.stage, "backward": options.backward}

    def found(compute: Callable[..., Tensor], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        *inputs, d_o = tensors
        leaves = [x.detach().requires_grad_() for x in inputs]
        o = compute(*leaves)
        return o.detach(), *torch.autograd.grad(o, leaves, d_o)

    tensors = _tensors(options, rows, device)
    alone = found(lambda q, k, v: attention(q, k, v, **choices)[0], tensors)
    for schedule in options.schedules:

        def ours(q: Tensor, k: Tensor, v: Tensor, schedule: str = schedule) -> Tensor:
            return several.attention(q, k, v, schedule=schedule, **choices)[0]

        own, expected = ([several.shard(x, rank, ranks, schedule) for x in of] for of in (tensors, alone))
        for name, x, y in zip(("o", "dq", "dk", "dv"), found(ours, own), expected, strict=True):
            apart = torch.stack(
                [(x - y).abs().max(), y.abs().max(), x.isfinite().logical_not().any()]
            ).float()
            dist.all_reduce(apart, dist.ReduceOp.MAX)
            difference, largest, bad = apart.tolist()
            yield {
                "ranks": ranks,
                "N": rows,
                "contender": schedule,
                "tensor": name,
                "difference": difference,
                "largest": largest,
                "finite": not bad,
            }


def link(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per size: what each rank sends to the next one, and receives, in GB/s."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for mebibytes in (1, 4, 16, 64, 256):
        sent = torch.zeros(mebibytes << 20, dtype=torch.uint8, device=device)
        received = torch.empty_like(sent)

        def swap(sent: Tensor = sent, received: Tensor = received) -> None:
            for work in dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, sent, (rank + 1) % ranks),
                    dist.P2POp(dist.irecv, received, (rank - 1) % ranks),
                ]
            ):
                work.wait()

        ms = _slowest(swap, device, options.repeats, burst=20)
        yield {"ranks": ranks, "mib": mebibytes, "ms": ms, "gb_s": (mebibytes << 20) / ms / 1e6}


class Layer(nn.Module):
    """A transformer's layer on a rank's rows (n, width) of one sequence."""

    def __init__(self, options: argparse.Namespace, schedule: str | None) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.d = options.heads, options.kv_heads, options.head_dim
        width = self.heads * self.d
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.project = nn.Linear(width, (self.heads + 2 * self.kv_heads) * self.d)
        self.output = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.choices = {
            "is_causal": True,
            "enable_gqa": True,
            "stage": options.stage,
            "backward": options.backward,
        }
        self.schedule = schedule

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norms[0](x)).view(1, len(x), -1, self.d).transpose(1, 2)
        q, k, v = parts.split([self.heads, self.kv_heads, self.kv_heads], 1)
        if self.schedule is None:
            o, _ = attention(q, k, v, **self.choices)
        else:
            o, _ = several.attention(q, k, v, schedule=self.schedule, **self.choices)
        x = x + self.output(o.transpose(1, 2).reshape(len(x), -1))
        found: Tensor = x + self.mlp(self.norms[1](x))
        return found


def model(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per schedule, and one for a rank with the whole sequence: the time of a step, and memory."""
    rows = options.model_rows
    for schedule in (*options.schedules, None):
        is_idle = schedule is None and dist.get_rank()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        step: Call = _NOTHING["both"] if is_idle else _training_step(options, schedule, rows, device)
        failed: list[bool] = []

        def guarded(step: Call = step, failed: list[bool] = failed) -> None:
            try:
                step()
            except torch.OutOfMemoryError:  # of one rank; the others are waiting for it
                failed.append(True)

        ms = _slowest(guarded, device, 1, burst=1, warm_up=1)
        yield {
            "ranks": dist.get_world_size(),
            "N": rows,
            "contender": schedule or "one",
            "ms": float("nan") if failed else ms,
            "peak_gib": torch.cuda.max_memory_allocated() / GIBIBYTE if device.type == "cuda" else None,
        }
        del step, guarded


def _training_step(
    options: argparse.Namespace, schedule: str | None, rows: int, device: torch.device
) -> Call:
    """Forward and backward of four layers on this rank's rows; gradients of weights are summed over ranks."""
    torch.manual_seed(0)
    width = options.heads * options.head_dim
    with device:
        net = nn.Sequential(*(Layer(options, schedule) for _ in range(4))).to(torch.bfloat16)
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    if schedule is not None:
        x = several.shard(x, dist.get_rank(), dist.get_world_size(), schedule, 0)

    def step() -> None:
        net.zero_grad()
        (net(x).square().sum() / rows).backward()
        for weight in net.parameters() if schedule is not None else ():
            dist.all_reduce(weight.grad)

    return step


def plan(options: argparse.Namespace) -> pd.DataFrame:
    """What a step of the zigzag computes and sends forward, and how long both take: by formula alone."""
    found = []
    for ranks, bandwidth in ((2, options.link), (8, options.link), (64, options.network)):
        for rows in (32768, 65536, 262144, 1048576):
            sizes = _sizes(options, rows, ranks, "zigzag")
            module = several.SCHEDULES["zigzag"]
            scores = [part.scores(sizes, 0) for part in module.parts(sizes, 0)]
            flops = 4.0 * options.head_dim * options.heads * scores[1]
            hop = module.bytes_sent(sizes, 0)[0] / (ranks - 1)
            compute_ms, hop_ms = flops / options.tflops / 1e9, hop / bandwidth / 1e6
            own_ms = 4.0 * options.head_dim * options.heads * scores[0] / options.tflops / 1e9
            total = max(own_ms, hop_ms) + (ranks - 2) * max(compute_ms, hop_ms) + compute_ms
            whole = 2.0 * options.head_dim * options.heads * rows * (rows + 1) / options.tflops / 1e9
            found.append(
                {
                    "GPUs": ranks,
                    "N": f"{rows:,}",
                    "GFLOP per step": f"{flops / 1e9:,.0f}",
                    "MiB per hop": f"{hop / 2**20:,.0f}",
                    "step ms": f"{compute_ms:.2f}",
                    "hop ms": f"{hop_ms:.2f}",
                    "hidden": "yes" if hop_ms <= compute_ms else "no",
                    "times one GPU": f"{whole / total:.1f}",
                }
            )
    return pd.DataFrame(found)


if __name__ == "__main__":
    sys.exit(main())
