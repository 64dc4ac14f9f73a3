"""Runs the ranks of test_ranks.py: python three_ranks.py FOLDER. Torch is imported once, before they fork.

Rank r writes what it found into FOLDER/r.pt, and FOLDER/lost-r.txt last: what it says when rank 2 ends.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import ladder
import ladder.call.distributed as several
from ladder.call.distributed import calls, copies, ring
from ladder.errors import CommunicationError
from ladder.operations import BackwardProblem, get_operation

RANKS = 3
#: 35 rows are 12, 12 and 11, or 6 chunks of 6 and 5; 6 heads share 3 key heads.
PROBLEM = BackwardProblem(1, 6, 35, 35, 32, 3, "f16", is_causal=True, lse_gradient=True)
RUNGS = {"enable_gqa": True, "stage": "v3", "backward": "b2"}
PATIENCE = timedelta(seconds=20)
#: The same rows as tokens of sequences: one that all ranks share, one without tokens, one of a single token.
PACKED = BackwardProblem(1, 6, 35, 35, 64, 3, "f16", lse_gradient=True)
OFFSETS = (0, 27, 27, 34, 35)


def inputs(problem: BackwardProblem = PROBLEM) -> dict[str, Tensor]:
    """q, k, v, d_o and d_lse of the whole problem."""
    made = get_operation("attention_backward").make_inputs(problem)
    return {name: made[name] for name in ("q", "k", "v", "d_o", "d_lse")}


def computed(group: several.CountingGroup, schedule: str, is_causal: bool) -> dict[str, Any]:
    """This rank's outputs and gradients, and the bytes that it sent for them."""
    cut = {name: several.shard(x, group.rank(), RANKS, schedule) for name, x in inputs().items()}
    q, k, v = (cut[name].requires_grad_() for name in ("q", "k", "v"))
    group.sent_bytes = 0
    o, lse = several.attention(q, k, v, group=group, schedule=schedule, is_causal=is_causal, **RUNGS)
    forward, group.sent_bytes = group.sent_bytes, 0
    gradients = torch.autograd.grad((o, lse), (q, k, v), (cut["d_o"], cut["d_lse"]))
    outputs = zip(("o", "lse", "dq", "dk", "dv"), (o.detach(), lse.detach(), *gradients), strict=True)
    return {**dict(outputs), "sent": (forward, group.sent_bytes)}


def of_two(rank: int) -> dict[str, dict[str, Tensor]]:
    """Outputs and gradients of ranks 0 and 1, which share the rows, by schedule."""
    group = dist.new_group([0, 1])
    found = {}
    for schedule in ("all_gather", "ring", "zigzag") if rank < 2 else ():
        cut = {name: several.shard(x, rank, 2, schedule) for name, x in inputs().items()}
        q, k, v = (cut[name].requires_grad_() for name in ("q", "k", "v"))
        o, lse = several.attention(q, k, v, group=group, schedule=schedule, is_causal=True, **RUNGS)
        gradients = torch.autograd.grad((o, lse), (q, k, v), (cut["d_o"], cut["d_lse"]))
        named = zip(("o", "lse", "dq", "dk", "dv"), (o.detach(), lse.detach(), *gradients), strict=True)
        found[schedule] = dict(named)
    return found


def packed(group: several.CountingGroup, schedule: str, is_causal: bool) -> dict[str, Any]:
    """The same of packed sequences."""
    cut = {name: several.shard(x, group.rank(), RANKS, schedule) for name, x in inputs(PACKED).items()}
    q, k, v = (cut[name].requires_grad_() for name in ("q", "k", "v"))
    group.sent_bytes = 0
    marks = torch.tensor(OFFSETS, dtype=torch.int32)
    choices = {"schedule": schedule, "is_causal": is_causal, "enable_gqa": True}
    o, lse = several.attention(q, k, v, cu_seqlens=marks, group=group, **choices)
    forward, group.sent_bytes = group.sent_bytes, 0
    gradients = torch.autograd.grad((o, lse), (q, k, v), (cut["d_o"], cut["d_lse"]))
    outputs = zip(("o", "lse", "dq", "dk", "dv"), (o.detach(), lse.detach(), *gradients), strict=True)
    return {**dict(outputs), "sent": (forward, group.sent_bytes)}


def of_lse_alone(schedule: str, rank: int) -> Tensor:
    """dk if o has no gradient, and on rank 0 lse has none."""
    cut = {name: several.shard(x, rank, RANKS, schedule) for name, x in inputs().items()}
    q, k, v = (cut[name].requires_grad_() for name in ("q", "k", "v"))
    o, lse = several.attention(q, k, v, schedule=schedule, is_causal=True, **RUNGS)
    found = (o, torch.zeros_like(o)) if rank == 0 else (lse, cut["d_lse"])
    return torch.autograd.grad(found[0], k, found[1])[0]


def alone(rank: int) -> bool:
    """Whether a group of one rank gives the bits of ladder.attention, and communicates nothing."""
    [group] = [one for r in range(RANKS) if (one := dist.new_group([r])) and r == rank]
    q, k, v = (inputs()[name] for name in ("q", "k", "v"))
    with replaced(calls, "exchanged", None):
        found = several.attention(q, k, v, group=group, schedule="zigzag", is_causal=True, **RUNGS)
    expected = ladder.attention(q, k, v, is_causal=True, enable_gqa=True, stage="v3")
    refused = said(lambda: several.attention(q, k, v, group=group, schedule="spiral"))
    return all(map(torch.equal, found, expected)) and "there is no schedule 'spiral'" in refused


def said(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {getattr(error, 'message', error)}"
    return ""


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    kept = getattr(owner, name)
    setattr(owner, name, value)
    yield
    setattr(owner, name, kept)


def head_starts() -> AbstractContextManager[None]:
    """Ranks inside launch their own parts ahead, as if copy engines had carried blocks."""
    mailbox = SimpleNamespace(make_room=lambda: None)
    return replaced(ring, "known_mailbox", lambda *_: mailbox)


def offsets(*marks: int) -> Tensor:
    return torch.tensor(marks, dtype=torch.int32)


#: What the last rank asks for, where the others ask for none of it.
DIFFERENCES: dict[str, dict[str, Any]] = {
    "heads": {"heads": 12},
    "dtype": {"dtype": torch.bfloat16},
    "head_dim": {"head_dim": 32},
    "two head dims": {"head_dim": 192, "value_dim": 128},
    "mask": {"is_causal": True},
    "schedule": {"schedule": "ulysses"},
    "gradients": {"wants": True},
    "unknown schedule": {"schedule": "spiral"},
    "many bytes": {"schedule": "\U0001f300" * 300},
    "schedules": {"schedule": ["ring"]},
    "no dtype of the rung": {"dtype": torch.float32},
    "no rows": {"rows": 0},
    "no rows, no dtype": {"rows": 0, "dtype": torch.float32},
    "no rows, and no offsets": {"rows": 0, "cu_seqlens": offsets(0, 12)[None]},
    "sequences on one rank": {"cu_seqlens": offsets(0, 12)},
    "decreasing": {"cu_seqlens": offsets(0, 7, 5, 12)},
    "no offsets": {"cu_seqlens": offsets(0)[0]},
    "no data": {"cu_seqlens": offsets(0, 12).to("meta")},
}


def answer(
    heads: int = 6,
    rows: int = 4,
    head_dim: int = 64,
    value_dim: int | None = None,
    dtype: Any = torch.float16,
    wants: bool = False,
    **options: Any,
) -> str:
    """What a rank hears that asks for this."""
    q = torch.zeros(1, heads, rows, head_dim, dtype=dtype, requires_grad=wants)
    k = torch.zeros(1, 3, rows, head_dim, dtype=dtype)
    v = k if value_dim is None else k[..., :value_dim]
    rungs = {"enable_gqa": True} if "cu_seqlens" in options else RUNGS
    choices = {**rungs, "schedule": "ring", **options}
    return said(lambda: several.attention(q, k, v, **choices))


def disagreements(rank: int) -> dict[str, str]:
    """What this rank hears if the last one differs from the others, or if all have too few rows."""
    is_last = rank == RANKS - 1

    def last(**options: Any) -> str:
        return answer(**options) if is_last else answer()

    def ahead(**options: Any) -> str:
        with head_starts():
            return last(**options)

    def without_memory() -> str:
        def fails(*_: Any) -> None:
            raise torch.OutOfMemoryError("no memory")

        with replaced(ring, "head_start", fails if is_last else ring.head_start):
            return answer()

    def blocks_differ() -> str:
        if is_last:
            copies._mailboxes[dist.group.WORLD] = SimpleNamespace(sent=1, device=None)
        found = answer()
        copies._mailboxes.clear()
        return found

    return {
        **{what: last(**options) for what, options in DIFFERENCES.items()},
        "rows of zigzag": answer(rows=5 if is_last else 4, schedule="zigzag"),
        "too few for zigzag": answer(rows=1, schedule="zigzag"),
        "no rows ahead": ahead(rows=0),
        "heads ahead": ahead(heads=12),
        "other sequences": answer(cu_seqlens=offsets(0, 5 if is_last else 7, 12)),
        "other tokens": answer(cu_seqlens=offsets(0, 13)),
        "no memory": without_memory(),
        "blocks": blocks_differ(),
        "no longer there": last(heads=6),
    }


def unanswered(rank: int) -> tuple[str, float]:
    """What the others hear, and after how many seconds, if the last rank does not call within the timeout."""
    group = dist.new_group(timeout=timedelta(seconds=2))
    q = torch.zeros(1, 2, 4, 32, dtype=torch.float16)
    several.attention(q, q, q, group=group, stage="v3")
    dist.barrier()
    if rank == RANKS - 1:
        time.sleep(4)
        return "", 0.0
    began = time.monotonic()
    return said(lambda: several.attention(q, q, q, group=group, stage="v3")), time.monotonic() - began


def run(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS, timeout=PATIENCE
    )
    group = several.counting_group(PATIENCE)
    found = {
        (schedule, is_causal): computed(group, schedule, is_causal)
        for schedule in several.SCHEDULES
        for is_causal in (True, False)
    }
    again = computed(group, "zigzag", True)
    with head_starts():
        ahead = computed(group, "zigzag", True)
    results = {
        "computed": found,
        "same bits again": all(
            torch.equal(one[name], found["zigzag", True][name])
            for one in (again, ahead)
            for name in ("o", "lse", "dk", "dv")
        ),
        "packed": {
            (schedule, is_causal): packed(group, schedule, is_causal)
            for schedule, is_causal in [*((name, True) for name in several.SCHEDULES), ("zigzag", False)]
        },
        "of lse alone": {schedule: of_lse_alone(schedule, rank) for schedule in ("ring", "ulysses")},
        "of two": of_two(rank),
        "alone": alone(rank),
        "disagreements": disagreements(rank),
        "unanswered": unanswered(rank),
    }
    torch.save(results, folder / f"{rank}.pt")
    dist.barrier()
    if rank == RANKS - 1:
        os._exit(1)
    try:
        computed(group, "ring", True)
    except CommunicationError as error:
        (folder / f"lost-{rank}.txt").write_text(error.message)
    os._exit(0)


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=run, args=(rank, Path(sys.argv[1]))) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
