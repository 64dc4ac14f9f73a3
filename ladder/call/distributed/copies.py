"""Blocks that go round the GPUs of one host by their copy engines, where torch has symmetric memory.

NCCL's kernels need SMs. If an attention kernel has taken all of them, they start when it ends. A copy engine
needs none. Each rank has two slots in symmetric memory, which the rank before it fills in turn. Two flags for
each slot say whether it is full, and whether it is free again:

    this rank                                       the next rank, which has the slot
    waits for "free", from the third use on
    copies a block into the slot on a side stream
    writes "full" behind it                         waits for "full", and resets it
                                                    computes with the slot
                                                    writes "free"

Flags are written by the stream, without a kernel. The kernels that wait for them are in the stream that
computes, between those of attention. A wait that takes longer than the group's timeout ends in a CUDA error.

NCCL carries the blocks instead if a rank has ``LADDER_COPY_ENGINES=0`` in its environment, captures a CUDA
graph, or calls with tensors on another GPU than before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from ladder.call.distributed.agreement import Description, exchanged, timeout_of
from ladder.call.distributed.exchange import Transfer
from ladder.call.distributed.team import Team

#: A slot is a multiple of so many bytes, as GPUs map memory.
_PAGE = 2 << 20
#: The two flags of a slot.
_FULL, _FREE = range(2)
#: The mailbox of each group; None if a rank could not make its own.
_mailboxes: WeakKeyDictionary[dist.ProcessGroup, Mailbox | None] = WeakKeyDictionary()
_Made = TypeVar("_Made")


class Mailbox:
    """The two ``slots`` of this rank, in symmetric memory, with those of the next rank. All ranks make one
    together. ``sent`` counts the blocks that this rank has sent.
    """

    def __init__(self, team: Team, slots: Tensor) -> None:
        symmetric = _symmetric_memory()
        self.room = room = slots.nbytes // 2
        self.device, self._team, self._own = slots.device, team, slots
        self._following, self._before = (team.rank + 1) % team.ranks, (team.rank - 1) % team.ranks
        self._memory = symmetric.rendezvous(slots, team.group)
        self._theirs = self._memory.get_buffer(self._following, (2 * room,), torch.uint8)
        self._flags = {
            peer: self._memory.get_signal_pad(peer, (4 * team.ranks,), torch.uint32)
            for peer in (self._following, self._before)
        }
        self._write = symmetric._SymmetricMemory.stream_write_value32
        self._patience_ms = int(1e3 * timeout_of(team.group).total_seconds())
        self.sent = self._arrived = self._freed = 0
        self._has_room = True
        self._used: torch.cuda.Event | None = None

    def make_room(self) -> torch.cuda.Event:
        """Waits until the next slot is free. What is launched after this call can run while a block that is
        ready now is copied: its transfer needs to wait only for the event that is returned.
        """
        stream = torch.cuda.current_stream(self.device)
        if self._used is not None:  # perhaps in another stream
            stream.wait_event(self._used)
        if self._arrived < self.sent:  # an error has ended the last round
            self._arrive()
        if not self._has_room:
            self._wait(self._following, _FREE, self.sent % 2)
            self._has_room = True
        return stream.record_event()

    def send(self, blocks: Sequence[Tensor], ready: torch.cuda.Event | None = None) -> Transfer:
        """Sends the contiguous ``blocks`` to the next rank, while a block arrives from the one before.

        ``ready`` is what :meth:`make_room` returned when they were complete; by default they are by now.
        """
        ready = self.make_room() if ready is None else ready
        slot, self.sent = self.sent % 2, self.sent + 1
        self._has_room = self.sent < 2

        def start() -> list[dist.Work]:
            begin = slot * self.room
            for x in blocks:
                self._theirs[begin : begin + x.nbytes].view(x.dtype).view(x.shape).copy_(x, non_blocking=True)
                begin += x.nbytes
            self._say(self._following, _FULL, slot)
            return []

        return Transfer(self._team, self.device, start, ready)

    def received(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The block (2, ...) that has arrived for the last one sent, for what is launched from now on. Its
        slot is kept until the next one is received, or until ``done``.
        """
        slot = self._arrive()
        begin = slot * self.room
        count = torch.Size(shape).numel() * dtype.itemsize
        return self._own[begin : begin + count].view(dtype).view(*shape).unbind()

    def done(self) -> None:
        """What was launched so far is all that reads the slots."""
        while self._freed < self._arrived:
            self._say(self._before, _FREE, self._freed % 2)
            self._freed += 1
        self._used = torch.cuda.current_stream(self.device).record_event()

    def _arrive(self) -> int:
        self.done()
        slot, self._arrived = self._arrived % 2, self._arrived + 1
        self._wait(self._before, _FULL, slot)
        return slot

    def _say(self, peer: int, flag: int, slot: int) -> None:
        self._write(self._flags[peer], self._team.ranks * (2 * flag + slot) + self._team.rank, 1)

    def _wait(self, peer: int, flag: int, slot: int) -> None:
        self._memory.wait_signal(peer, 2 * flag + slot, self._patience_ms)


def known_mailbox(group: dist.ProcessGroup, device: torch.device) -> Mailbox | None:
    """The mailbox that the group has, if it has one on this GPU."""
    found = _mailboxes.get(group)
    return found if found is not None and found.device == device else None


def with_mailbox(group: dist.ProcessGroup, own: Description, device: torch.device) -> Description:
    """A rank's description with what its mailbox adds. On another GPU than before, the rank asks for no copy
    engines: the other ranks would not make new mailboxes with it.
    """
    found = _mailboxes.get(group)
    if found is None:
        return own
    return replace(own, blocks=found.sent, copies_on=own.copies_on if found.device == device else "")


def mailbox_of(team: Team, device: torch.device, room: int) -> Mailbox | None:
    """The group's mailbox with at least so many bytes per slot; all ranks ask for it together. None where the
    ranks may not use copy engines, or are not GPUs of one host that reach each other's memory.
    """
    if not team.copies or team.ranks == 1 or device.type != "cuda":
        return None
    if team.group not in _mailboxes:
        _mailboxes[team.group] = _made(team, device, room)
    known = _mailboxes[team.group]
    if known is not None and known.room < room:
        _mailboxes[team.group] = _made(team, device, room)
    return _mailboxes[team.group]


def _made(team: Team, device: torch.device, room: int) -> Mailbox | None:
    """A new mailbox, if each rank could make its own. The ranks wait for each other inside
    :class:`Mailbox`, so all must have slots before.
    """
    slots = _on_all_ranks(team, device, lambda: _new_slots(device, room))
    return None if slots is None else _on_all_ranks(team, device, lambda: Mailbox(team, slots))


def _new_slots(device: torch.device, room: int) -> Tensor:
    """Two slots, each of at least so many bytes."""
    slots: Tensor = _symmetric_memory().empty(2 * _PAGE * -(-room // _PAGE), dtype=torch.uint8, device=device)
    return slots


def _on_all_ranks(team: Team, device: torch.device, make: Callable[[], _Made]) -> _Made | None:
    """What ``make`` returns, or None if it raised on a rank. No rank uses an older mailbox any more."""
    made, problem = None, ""
    try:
        made = make()
    except (ImportError, AttributeError, RuntimeError) as error:
        problem = str(error) or type(error).__name__
    torch.cuda.synchronize(device)
    return None if any(one.error for one in exchanged(team.group, Description(error=problem))) else made


def _symmetric_memory() -> Any:
    return import_module("torch.distributed._symmetric_memory")
