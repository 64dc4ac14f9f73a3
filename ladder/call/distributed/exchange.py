"""Communication that runs while the caller computes, with errors that name the ranks."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor

from ladder.call.distributed.team import Team
from ladder.call.distributed.timeline import is_recording, mark, moment
from ladder.errors import CommunicationError

#: Tags of messages between the same ranks that are in flight together: of K and V, and of dK and dV.
KEYS_AND_VALUES, GRADIENTS = (0, 1), (2, 3)


class Transfer:
    """A communication in flight.

    On CUDA it has a stream of its own, which first waits for ``after``, by default for what the caller has
    launched so far; so a buffer that an earlier kernel reads may be received into. Whoever waits has the
    current stream wait. Until then this object, by ``start``, owns the tensors: the allocator, which knows
    nothing of that stream, would give their memory to the next kernel. If an error keeps the caller from
    waiting, the stream that it was in waits when this object is deleted.
    """

    def __init__(
        self,
        team: Team,
        device: torch.device,
        start: Callable[[], Sequence[dist.Work]],
        after: torch.cuda.Event | None = None,
    ) -> None:
        self._team, self._device = team, device
        self._owner: object = start
        if device.type == "cuda":
            self._stream = torch.cuda.current_stream(device)
            _side_stream(device).wait_event(after or self._stream.record_event())
        with self._on_side_stream(), communicating(team.group):
            self._begin = moment(device) if is_recording() else None
            self._works = start()
            if device.type == "cuda":
                self._finish()
                self._end = _side_stream(device).record_event()

    def wait(self) -> None:
        """Returns when the tensors are there, on CUDA to what is launched from now on."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).wait_event(self._end)
        else:
            with communicating(self._team.group):
                self._finish()
        self._owner = None

    def __del__(self) -> None:
        if self._owner is not None and self._device.type == "cuda":
            self._stream.wait_stream(_side_stream(self._device))

    def _finish(self) -> None:
        for work in self._works:
            work.wait()
        if self._begin is not None:
            mark("communicate", self._begin, moment(self._device))

    def _on_side_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(_side_stream(self._device)) if self._device.type == "cuda" else nullcontext()


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextmanager
def communicating(group: dist.ProcessGroup) -> Iterator[None]:
    """Turns errors of torch.distributed into :class:`CommunicationError`."""
    try:
        yield
    except RuntimeError as error:
        [first, *_] = str(error).splitlines() or [type(error).__name__]
        reason = re.sub(r"^\[\S+:\d+\] ", "", first)  # without gloo's own source line
        raise CommunicationError(
            f"rank {dist.get_rank(group)} lost the other ranks: {reason}",
            "Another rank has ended or does not answer; its own message says why.",
        ) from error


def pass_on(
    team: Team, blocks: Sequence[Tensor], received: Sequence[Tensor], tags: Sequence[int]
) -> Transfer:
    """Sends the contiguous ``blocks`` to the next rank of the ring, while ``received`` arrive from the one
    before.
    """
    following, before = (team.rank + 1) % team.ranks, (team.rank - 1) % team.ranks

    def start() -> list[dist.Work]:
        # One batch: NCCL starts all together, so the order of sends cannot deadlock.
        return dist.batch_isend_irecv(
            [
                dist.P2POp(send, x, group=team.group, tag=tag, group_peer=peer)
                for send, tensors, peer in ((dist.isend, blocks, following), (dist.irecv, received, before))
                for x, tag in zip(tensors, tags, strict=True)
            ]
        )

    return Transfer(team, blocks[0].device, start)


def all_gather(team: Team, block: Tensor) -> tuple[Transfer, Tensor]:
    """Starts to gather equally large blocks; they are (R, ...) once the transfer is complete."""
    gathered = block.new_empty((team.ranks, *block.shape))

    def start() -> list[dist.Work]:
        return [dist.all_gather([*gathered.unbind()], block, group=team.group, async_op=True)]

    return Transfer(team, block.device, start), gathered


def all_to_all(team: Team, pieces: Sequence[Tensor], counts: Sequence[int]) -> tuple[Tensor, ...]:
    """Sends flat piece r to rank r, and returns the piece of ``counts[r]`` elements of each rank r."""
    sent = torch.cat([*pieces])
    received = sent.new_empty(sum(counts))

    def start() -> list[dist.Work]:
        sizes = [*counts], [len(piece) for piece in pieces]
        return [dist.all_to_all_single(received, sent, *sizes, group=team.group, async_op=True)]

    Transfer(team, sent.device, start).wait()
    return received.split([*counts])
