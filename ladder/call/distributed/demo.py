"""All schedules on CPUs, with gloo and emulated kernels: results within their bounds, and bytes sent.

    torchrun --nproc-per-node 4 -m ladder.distributed.demo

Each rank computes its rows of a small causal attention, and their gradients, by each schedule. Rank 0
compares the whole with float64, within the bounds of :mod:`ladder.call.distributed.bounds`, and with the
attention of one process. Bytes are counted by a process group that passes calls on to gloo. ``--fault`` shows
what happens if the last rank ends in the middle ("dies"), does not answer ("stops") or calls with another
number of heads ("shape").
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from ladder.call import attention as local_attention
from ladder.call.distributed.bounds import gradients_in_parts, reference_in_parts
from ladder.call.distributed.calls import SCHEDULES, attention
from ladder.call.distributed.counting import CountingGroup, counting_group
from ladder.call.distributed.exchange import communicating
from ladder.call.distributed.layout import Sizes, shard, shard_lengths, unshard
from ladder.errors import CommunicationError, LadderError
from ladder.operations import BackwardProblem, Problem, get_operation, make_inputs, parse_dtype, parse_sizes
from ladder.show.render import plain_table

#: A rank that does not answer for so long is lost.
PATIENCE = timedelta(seconds=20)


@dataclass(frozen=True)
class Choices:
    """What runs: the problem, the schedules and the rungs."""

    problem: Problem
    schedules: tuple[str, ...]
    stage: str
    backward: str
    fault: str


@dataclass(frozen=True)
class Shards:
    """What a rank found: its rows of o, lse, dq, dk and dv, and the bytes that it sent forward and
    backward."""

    tensors: dict[str, Tensor]
    sent: tuple[int, int]


def main() -> NoReturn:
    """Runs the demonstration as one of torchrun's processes; the exit status is 1 if something is wrong."""
    choices = _choices()
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, _ended_by_torchrun)
    _build(choices)
    store, rank, ranks = next(rendezvous("env://"))
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=PATIENCE)
        is_right = _run(choices, rank, ranks)
    except LadderError as error:
        is_right = False
        if store.add("errors", 1) == 1:  # all ranks have the same to say
            print(f"error: {error}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by the interpreter's end, in which gloo's threads may still hold tensors.
    os._exit(0 if is_right else 1)


def _choices() -> Choices:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", default="1,4,37,32", help="B,H,N,d (default: %(default)s)")
    parser.add_argument("--kv-heads", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--dtype", default="f16", help="default: %(default)s")
    parser.add_argument("--schedule", choices=SCHEDULES, help="default: all")
    parser.add_argument("--stage", default="v4", help="default: %(default)s")
    parser.add_argument("--backward", default="b2", help="default: %(default)s")
    parser.add_argument("--fault", choices=("dies", "stops", "shape"), default="")
    options = parser.parse_args()
    try:
        batch, heads, rows, head_dim = parse_sizes(options.problem, ("B,H,N,d", "1,4,37,32"))
        problem = Problem(
            batch, heads, rows, rows, head_dim, options.kv_heads, parse_dtype(options.dtype), is_causal=True
        )
    except LadderError as error:
        parser.error(str(error))
    schedules = (options.schedule,) if options.schedule else tuple(SCHEDULES)
    return Choices(problem, schedules, options.stage, options.backward, options.fault)


def _ended_by_torchrun(*_: object) -> NoReturn:
    raise CommunicationError("a rank has ended, so torchrun ends the others; its report below names the rank")


def _build(choices: Choices) -> None:
    """Builds the rungs, which may take longer than ranks wait for each other."""
    one_row = replace(choices.problem, q_len=1, kv_len=1)
    q, k, v = (x.requires_grad_() for x in make_inputs(one_row))
    o, _ = local_attention(
        q, k, v, is_causal=True, enable_gqa=True, stage=choices.stage, backward=choices.backward
    )
    o.sum().backward()


def _run(choices: Choices, rank: int, ranks: int) -> bool:
    """Runs all schedules; returns whether rank 0 found all right."""
    group = counting_group(PATIENCE)
    results, volumes = plain_table(), plain_table()
    for heading in ("error / bound", "o", "lse", "dq", "dk", "dv", "o of one rank"):
        results.add_column(heading, justify="right" if results.columns else "left", no_wrap=True)
    for heading in ("bytes sent", "rank", "rows", "forward", "formula", "backward", "formula"):
        volumes.add_column(heading, justify="right" if volumes.columns else "left", no_wrap=True)
    is_right = True
    for schedule in choices.schedules:
        own = _shards(choices, schedule, group)
        found: list[Shards] | None = [own] * ranks if rank == 0 else None
        with communicating(group):
            dist.gather_object(own, found)
        if found is not None:
            is_right &= _compared(choices, schedule, found, results)
            is_right &= _counted(choices, schedule, found, volumes)
    if rank == 0:
        console = Console(width=100)
        console.print(f"{choices.problem} over {ranks} ranks: {choices.stage} and {choices.backward}\n")
        console.print(results)
        console.print(volumes)
        console.print("right" if is_right else "[bold red]WRONG[/]")
    return is_right


def _inputs(problem: Problem) -> dict[str, Tensor]:
    """q, k, v, and the gradients of o and lse, of the whole problem."""
    wanted = BackwardProblem(**asdict(problem), lse_gradient=True)
    inputs = get_operation("attention_backward").make_inputs(wanted)
    return {name: x for name, x in inputs.items() if name not in ("o", "lse") and x is not None}


def _shards(choices: Choices, schedule: str, group: CountingGroup) -> Shards:
    """Computes this rank's rows, by one schedule."""
    rank, ranks = group.rank(), group.size()
    shards = {name: shard(x, rank, ranks, schedule) for name, x in _inputs(choices.problem).items()}
    q, k, v = (shards[name].requires_grad_() for name in ("q", "k", "v"))
    is_faulty = rank == ranks - 1
    if is_faulty and choices.fault == "shape":
        q, k, v = (torch.cat((x, x), 1) for x in (q, k, v))
    group.sent_bytes = 0
    o, lse = attention(
        q, k, v, group=group, schedule=schedule, is_causal=True, enable_gqa=True, stage=choices.stage,
        backward=choices.backward,
    )  # fmt: skip
    forward, group.sent_bytes = group.sent_bytes, 0
    if is_faulty and choices.fault == "dies":
        os._exit(1)
    if is_faulty and choices.fault == "stops":
        time.sleep(3600)
    gradients = torch.autograd.grad((o, lse), (q, k, v), (shards["d_o"], shards["d_lse"]))
    tensors = dict(zip(("o", "lse", "dq", "dk", "dv"), (o.detach(), lse.detach(), *gradients), strict=True))
    return Shards(tensors, (forward, group.sent_bytes))


def _compared(choices: Choices, schedule: str, found: list[Shards], table: Table) -> bool:
    """Adds a row of the largest errors, each as a multiple of its bound; returns whether all are allowed."""
    problem, ranks, inputs = choices.problem, len(found), _inputs(choices.problem)
    whole = {name: unshard([one.tensors[name] for one in found], schedule) for name in found[0].tensors}
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    scale = problem.softmax_scale
    forward = reference_in_parts(q, k, v, schedule, ranks, is_causal=True, scale=scale)
    gradients = gradients_in_parts(
        q,
        k,
        v,
        whole["o"],
        whole["lse"],
        inputs["d_o"],
        inputs["d_lse"],
        schedule,
        ranks,
        is_causal=True,
        scale=scale,
    )
    errors = {**forward.errors(whole), **gradients.errors(whole)}
    one_rank, _ = local_attention(q, k, v, is_causal=True, enable_gqa=True, stage=choices.stage)
    apart = float((whole["o"].double() - one_rank.double()).abs().max())
    shares = [f"{one.error / one.bound:.2f}" for one in errors.values()]
    table.add_row(schedule, *shares, f"{apart:.1e} off" if apart else "same bits")
    return all(one.is_allowed for one in errors.values())


def _counted(choices: Choices, schedule: str, found: list[Shards], table: Table) -> bool:
    """Adds a row for each rank; returns whether all counts equal the formula."""
    problem = choices.problem
    lengths = shard_lengths(problem.q_len, len(found), schedule)
    element_bytes = found[0].tensors["o"].element_size()
    sizes = Sizes(
        problem.batch, problem.heads, problem.num_kv_heads, problem.head_dim, lengths, element_bytes, True
    )
    formulas = [SCHEDULES[schedule].bytes_sent(sizes, rank) for rank in range(len(found))]
    for rank, (one, formula) in enumerate(zip(found, formulas, strict=True)):
        pairs = zip(one.sent, formula, strict=True)
        cells = [f"{value:,}" for pair in pairs for value in pair]
        table.add_row("" if rank else schedule, str(rank), str(lengths[rank]), *cells)
    table.add_section()
    return [one.sent for one in found] == formulas


if __name__ == "__main__":
    main()
