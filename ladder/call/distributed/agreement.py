"""What all ranks must agree on, exchanged before the first tensor is sent.

Each rank describes its call. All ranks then check the same descriptions with the same function, so either all
go on or all raise the same error; a rank that raised alone would leave the others waiting.
"""

from __future__ import annotations

import json
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.constants import default_pg_timeout
from torch.distributed.distributed_c10d import _get_default_store

from ladder.call.distributed.exchange import communicating
from ladder.call.distributed.layout import shard_lengths
from ladder.errors import CommunicationError, InvalidProblem

#: Descriptions are sent in messages of this size, with so many characters of an error. JSON takes up to 12
#: bytes for each of them.
_MESSAGE_BYTES, _ERROR_LENGTH = 4096, 256
_groups: WeakKeyDictionary[dist.ProcessGroup, Any] = WeakKeyDictionary()
#: How many groups for descriptions were made, by the name of the group.
_made: Counter[str] = Counter()


@dataclass(frozen=True)
class Description:
    """A rank's call. ``error`` is what is wrong with it by itself; the other fields are then not looked at.

    ``sequences`` stands for the offsets of packed sequences, which end with ``tokens``; it is "none" without.
    ``device`` is "cpu" or "cuda", and ``gpu`` names the GPU and its host; ``gradients`` says whether they are
    wanted. ``copies_on`` is the host whose copy engines may be used, "" if none; ``blocks`` counts what they
    have sent so far.
    """

    error: str = ""
    schedule: str = ""
    batch: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    rows: int = 0
    dtype: str = ""
    is_causal: bool = False
    scale: float | None = None
    sequences: str = "none"
    tokens: int = 0
    gradients: bool = False
    device: str = ""
    gpu: str = ""
    copies_on: str = ""
    blocks: int = 0


#: The variable of the environment that, as "0" on any rank, has NCCL carry K and V instead of copy engines.
COPY_ENGINES = "LADDER_COPY_ENGINES"
#: The fields that must be the same on all ranks, in words.
_SHARED = {
    "schedule": "the schedule",
    "batch": "the batch size",
    "heads": "the number of query heads",
    "kv_heads": "the number of key heads",
    "head_dim": "the head dimension",
    "dtype": "the dtype",
    "is_causal": "is_causal",
    "scale": "the scale",
    "sequences": "cu_seqlens",
    "gradients": "whether gradients are wanted",
    "device": "the kind of device",
}


def exchanged(group: dist.ProcessGroup, own: Description) -> list[Description]:
    """The descriptions of all ranks. Raises :class:`CommunicationError`."""
    text = json.dumps({**asdict(own), "error": own.error[:_ERROR_LENGTH]}).encode()
    message = torch.frombuffer(bytearray(text.ljust(_MESSAGE_BYTES)), dtype=torch.uint8)
    found = [torch.empty_like(message) for _ in range(group.size())]
    with communicating(group):
        _for_descriptions(group).allgather([found], [message]).wait()
    return [Description(**json.loads(one.numpy().tobytes())) for one in found]


def _for_descriptions(group: dist.ProcessGroup) -> Any:
    """A gloo group of the same ranks. With NCCL, reading a description would wait for the GPU.

    :func:`torch.distributed.new_group` would name it by the number of groups that this process is in, which
    may differ among ranks.
    """
    if group not in _groups:
        name = group.group_name
        _made[name] += 1
        store = dist.PrefixStore(f"ladder/{name}/{_made[name]}", _get_default_store())
        _groups[group] = dist.ProcessGroupGloo(store, group.rank(), group.size(), timeout_of(group))
    return _groups[group]


def timeout_of(group: dist.ProcessGroup) -> timedelta:
    """How long the group waits for a rank; torch's default if it does not tell."""
    for device in group._device_types:
        found: timedelta = group._get_backend(device).options._timeout
        return found
    return default_pg_timeout


def description(
    query: Tensor,
    key: Tensor,
    schedule: str,
    is_causal: bool,
    scale: float | None,
    gradients: bool,
    offsets: Sequence[int] | None,
) -> Description:
    """Describes a call with valid tensors."""
    batch, heads, rows, head_dim = query.shape
    device = query.device
    gpu = f"GPU {torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else ""
    return Description(
        schedule=schedule,
        batch=batch,
        heads=heads,
        kv_heads=key.shape[1],
        head_dim=head_dim,
        rows=rows,
        dtype=str(query.dtype).removeprefix("torch."),
        is_causal=is_causal,
        scale=None if scale is None else float(scale),
        sequences="none" if offsets is None else sequence_words(offsets),
        tokens=0 if offsets is None else offsets[-1],
        gradients=gradients,
        device=device.type,
        gpu=f"{gpu} of {socket.gethostname()}" if gpu else "",
        copies_on=socket.gethostname() if _may_copy(device) else "",
    )


def _may_copy(device: torch.device) -> bool:
    """Whether this rank may use copy engines: unless it must not, or captures a CUDA graph, whose replays
    would not count the blocks.
    """
    is_capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    return os.environ.get(COPY_ENGINES) != "0" and not is_capturing


def sequence_words(offsets: Sequence[int]) -> str:
    """The offsets in words, if they are few, and a number that tells others apart."""
    shown = ", ".join(map(str, offsets[:8])) + (", .." if len(offsets) > 8 else "")
    return f"({shown}) #{crc32(str([*offsets]).encode()):08x}"


def require_agreement(ranks: Sequence[Description], backends: str) -> None:
    """Raises :class:`InvalidProblem` unless these ranks can compute one attention together, and
    :class:`CommunicationError` if they could not compute an earlier one.

    ``backends`` are the group's, as :func:`torch.distributed.get_backend_config` gives them.
    """
    for rank, one in enumerate(ranks):
        if one.error:
            raise InvalidProblem(f"rank {rank}: {one.error}")
    for field, words in _SHARED.items():
        of_value: dict[object, list[int]] = defaultdict(list)
        for rank, one in enumerate(ranks):
            of_value[getattr(one, field)].append(rank)
        if len(of_value) > 1:
            found = "; ".join(f"{value} on {_named(places)}" for value, places in of_value.items())
            raise InvalidProblem(f"the ranks disagree about {words}: {found}")
    _require_backend(ranks, backends)
    _require_rows(ranks)
    _require_blocks(ranks)
    first, count = ranks[0], len(ranks)
    if first.schedule == "ulysses" and (first.heads % count or first.kv_heads % count):
        raise InvalidProblem(
            f'"ulysses" gives each rank the same number of heads: {first.heads} query heads and '
            f"{first.kv_heads} key heads cannot be shared by {count} ranks",
            'The schedules "ring" and "zigzag" take any number of heads.',
        )


def _require_backend(ranks: Sequence[Description], backends: str) -> None:
    device = ranks[0].device
    backend = dict(pair.split(":") for pair in backends.split(",") if ":" in pair).get(device)
    if backend is None or (device == "cuda" and backend == "gloo"):
        raise InvalidProblem(
            f"the tensors are {device} tensors, and the group's backends are {backends}",
            'CUDA tensors need init_process_group("nccl"), CPU tensors "gloo"; '
            '"cpu:gloo,cuda:nccl" has both.',
        )
    owners: dict[str, int] = {}
    for rank, one in enumerate(ranks):
        if one.gpu and one.gpu in owners:
            raise InvalidProblem(
                f"ranks {owners[one.gpu]} and {rank} are both on {one.gpu}",
                "Each rank needs a GPU of its own: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])), "
                "with at most as many ranks as GPUs.",
            )
        owners[one.gpu] = rank


def _require_rows(ranks: Sequence[Description]) -> None:
    lengths = tuple(one.rows for one in ranks)
    count, total, schedule = len(ranks), sum(lengths), ranks[0].schedule
    if ranks[0].sequences != "none" and ranks[0].tokens != total:
        raise InvalidProblem(
            f"cu_seqlens ends with {ranks[0].tokens}, and the ranks hold {total} rows together",
            "Pass the offsets of the whole sequences, the same on all ranks.",
        )
    if schedule == "zigzag" and total < 2 * count:
        raise InvalidProblem(
            f'"zigzag" cuts the sequence into {2 * count} chunks, and it has only {total} rows',
            'The schedule "ring" takes such a sequence if each rank has a row.',
        )
    if 0 in lengths:
        raise InvalidProblem(
            f"rank {lengths.index(0)} has no rows: there are {total} over {count} ranks",
            "Use a smaller group for so short a sequence.",
        )
    expected = shard_lengths(total, count, schedule)
    if schedule == "zigzag" and lengths != expected:
        raise InvalidProblem(
            f"the ranks have {_listed(lengths)} rows; of {total} rows, zigzag gives them {_listed(expected)}",
            'ladder.distributed.shard(x, rank, ranks, "zigzag") cuts them so.',
        )


def _require_blocks(ranks: Sequence[Description]) -> None:
    """A rank that waits for a block would take the next call's."""
    if len({one.blocks for one in ranks}) > 1:
        counts = _listed([one.blocks for one in ranks])
        raise CommunicationError(
            f"the ranks have sent {counts} blocks: an error ended an earlier call, and not on all of them",
            "End all ranks, and start them again.",
        )


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
