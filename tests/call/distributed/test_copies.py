"""Slots and flags of the copies between GPUs, with memory that all ranks of this process share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ladder.call.distributed import copies, exchange
from ladder.call.distributed.agreement import Description
from ladder.call.distributed.copies import Mailbox, known_mailbox, mailbox_of, with_mailbox
from ladder.call.distributed.exchange import Transfer

SHAPE = (2, 3)


class SharedMemory:
    """Buffers and flags of all ranks. A flag must not be written twice, nor waited for before it is written:
    here no other thread would write it later.
    """

    def __init__(self, ranks: int) -> None:
        self.buffers: dict[int, Tensor] = {}
        self.pads = [torch.zeros(4 * ranks, dtype=torch.int64) for _ in range(ranks)]

    def of(self, rank: int, ranks: int) -> SimpleNamespace:
        def wait(peer: int, channel: int, timeout_ms: int) -> None:
            assert timeout_ms == 5000
            assert self.pads[rank][ranks * channel + peer] == 1, "waits for ever"
            self.pads[rank][ranks * channel + peer] = 0

        return SimpleNamespace(
            get_buffer=lambda peer, sizes, dtype: self.buffers[peer],
            get_signal_pad=lambda peer, sizes, dtype: self.pads[peer],
            wait_signal=wait,
        )


def write(pad: Tensor, offset: int, value: int) -> Tensor:
    assert pad[offset] == 0, "what the flag said is lost"
    pad[offset] = value
    return pad


@pytest.fixture(params=[2, 3])
def boxes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Mailbox]]:
    ranks = request.param
    memory = SharedMemory(ranks)
    stream = SimpleNamespace(wait_event=lambda event: None, record_event=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(copies, "timeout_of", lambda group: SimpleNamespace(total_seconds=lambda: 5.0))
    for rank in range(ranks):
        memory.buffers[rank] = torch.zeros(2 * copies._PAGE, dtype=torch.uint8)
    found = []
    for rank in range(ranks):
        module = SimpleNamespace(
            rendezvous=lambda *_, rank=rank: memory.of(rank, ranks),
            _SymmetricMemory=SimpleNamespace(stream_write_value32=write),
        )
        monkeypatch.setattr(copies, "import_module", lambda name, module=module: module)
        team: Any = SimpleNamespace(group=SimpleNamespace(rank=lambda: 0), rank=rank, ranks=ranks)
        found.append(Mailbox(team, memory.buffers[rank]))
    yield found


def blocks(number: float) -> list[Tensor]:
    return [torch.full(SHAPE, number, dtype=torch.bfloat16), torch.full(SHAPE, -number, dtype=torch.bfloat16)]


def go_round(boxes: list[Mailbox], first: int, done: Callable[[Mailbox], None] = Mailbox.done) -> None:
    """All blocks visit all ranks; the block of rank r is first + r."""
    ranks = len(boxes)
    held = [blocks(first + rank) for rank in range(ranks)]
    for step in range(1, ranks):
        for transfer in [box.send(block) for box, block in zip(boxes, held, strict=True)]:
            transfer.wait()
        held = [[*box.received((2, *SHAPE), torch.bfloat16)] for box in boxes]
        for rank, found in enumerate(held):
            assert all(map(torch.equal, found, blocks(first + (rank - step) % ranks)))
    for box in boxes:
        done(box)


def test_blocks_arrive_in_round_after_round(boxes: list[Mailbox]) -> None:
    for first in range(0, 70, 10):
        go_round(boxes, first)


def test_a_slot_that_was_not_freed_is_not_written(boxes: list[Mailbox]) -> None:
    with pytest.raises(AssertionError, match="waits for ever"):
        for first in range(0, 70, 10):
            go_round(boxes, first, done=lambda box: None)
            for box in boxes:
                box._freed = box._arrived


def test_an_error_between_sending_and_receiving(boxes: list[Mailbox]) -> None:
    go_round(boxes, 10)
    for box in boxes:
        box.send(blocks(99))
    go_round(boxes, 20)
    go_round(boxes, 30)


def test_room_is_waited_for_once(boxes: list[Mailbox]) -> None:
    """A head start makes room, and so does a transfer. A flag is set once, so it can be waited for once."""
    for first in range(0, 70, 10):
        for box in boxes:
            box.make_room()
            box.make_room()
        go_round(boxes, first)


def test_a_transfer_waits_for_no_more_than_its_block(
    boxes: list[Mailbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the event of ``make_room``, and without one behind all that was launched."""
    found: list[Any] = []
    monkeypatch.setattr(copies, "Transfer", lambda team, device, start, after: found.append(after))
    stream = SimpleNamespace(wait_event=lambda event: None, record_event=lambda: "now")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    ready: Any = "before the part was launched"
    boxes[0].send(blocks(1), ready)
    boxes[0]._arrived = 1
    boxes[0].send(blocks(2))
    assert found == [ready, "now"]


def test_an_error_while_a_block_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator gives away the block of a transfer that nobody waits for any more. The stream to which
    it gives the memory waits instead.
    """
    waits: list[Any] = []
    side = SimpleNamespace(wait_event=lambda event: None, record_event=lambda: "sent")
    stream = SimpleNamespace(wait_event=waits.append, wait_stream=waits.append, record_event=lambda: "now")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(exchange, "_side_stream", lambda device: side)
    team: Any = SimpleNamespace(group=None)
    one, other = (Transfer(team, torch.device("cuda"), list) for _ in range(2))
    one.wait()
    del one
    assert waits == ["sent"]
    del other
    assert waits == ["sent", side]


def test_cpus_and_several_hosts_have_none() -> None:
    for wanted, ranks, device in ((True, 2, "cpu"), (False, 2, "cuda"), (True, 1, "cuda")):
        team: Any = SimpleNamespace(copies=wanted, ranks=ranks)
        assert mailbox_of(team, torch.device(device), 100) is None


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a rank does to make a mailbox, where it can and all other ranks can."""
    done: list[str] = []

    def exchanged(group: Any, own: Any) -> list[Any]:
        done.append(f"exchange {own.error}".rstrip())
        return [own, Description()]

    def mailbox(team: Any, slots: Any) -> Any:
        done.append("mailbox")
        return SimpleNamespace(room=slots.room, device=slots.device, sent=0)

    def slots(device: Any, room: int) -> Any:
        done.append("slots")
        return SimpleNamespace(room=room, device=device)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append("synchronize"))
    monkeypatch.setattr(copies, "exchanged", exchanged)
    monkeypatch.setattr(copies, "Mailbox", mailbox)
    monkeypatch.setattr(copies, "_new_slots", slots)
    return done


def team_of_two() -> Any:
    return SimpleNamespace(copies=True, group=type("Group", (), {})(), rank=0, ranks=2)


CUDA = torch.device("cuda", 0)


def test_a_mailbox_is_made_once_for_its_room(steps: list[str]) -> None:
    team = team_of_two()
    assert known_mailbox(team.group, CUDA) is None
    first = mailbox_of(team, CUDA, 100)
    making = ["slots", "synchronize", "exchange", "mailbox", "synchronize", "exchange"]
    assert steps == making
    assert first is mailbox_of(team, CUDA, 50) is known_mailbox(team.group, CUDA)
    assert mailbox_of(team, CUDA, 200) is known_mailbox(team.group, CUDA) is not first
    assert steps == 2 * making


def test_all_ranks_do_without_if_one_cannot(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no peer access")

    monkeypatch.setattr(copies, "Mailbox", fails)
    team = team_of_two()
    assert mailbox_of(team, CUDA, 100) is mailbox_of(team, CUDA, 200) is None
    assert steps == ["slots", "synchronize", "exchange", "synchronize", "exchange no peer access"]


def test_a_rank_without_memory_for_slots_keeps_no_other_waiting(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks wait for each other inside a mailbox, so none may begin if one has no slots."""
    monkeypatch.setattr(copies, "exchanged", lambda group, own: [own, Description(error="out of memory")])
    assert mailbox_of(team_of_two(), CUDA, 100) is None
    assert steps == ["slots", "synchronize"]


def test_a_rank_that_moves_to_another_gpu_asks_for_no_copy_engines(steps: list[str]) -> None:
    team, own = team_of_two(), Description(copies_on="here")
    assert with_mailbox(team.group, own, CUDA) == own
    box: Any = mailbox_of(team, CUDA, 100)
    box.sent = 3
    assert with_mailbox(team.group, own, CUDA) == Description(copies_on="here", blocks=3)
    elsewhere = torch.device("cuda", 1)
    assert with_mailbox(team.group, own, elsewhere) == Description(copies_on="", blocks=3)
    assert known_mailbox(team.group, elsewhere) is None
