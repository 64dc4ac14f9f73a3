"""A rank's steps of the ring, without other ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rungs import named

from ladder.call.distributed import Sizes, r2_ring, r3_zigzag, ring
from ladder.call.distributed.team import Rungs, Team

RUNGS = Rungs(None, named("v3"), "auto", "", False)


@pytest.mark.parametrize("schedule", [r2_ring, r3_zigzag])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_head_start_has_the_bits_of_the_own_part(
    schedule: Any, is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v, *others = torch.randn(5, 1, 2, 32, 64, generator=torch.Generator().manual_seed(0)).half()
    sizes = Sizes(1, 2, 2, 64, (32, 32), 2, is_causal)
    group: Any = type("Group", (), {})()
    team = Team(group, 1, sizes, "ring", True, RUNGS)
    rounds = []

    def two_blocks(team: Team, k: torch.Tensor, v: torch.Tensor, started: Any = None) -> Any:
        rounds.append(started)
        return [(1, (k, v)), (0, others)]

    monkeypatch.setattr(ring, "_round", two_blocks)
    assert ring.head_start(group, RUNGS, q, k, v, is_causal) is None, "without a mailbox"
    ready = object()
    monkeypatch.setattr(ring, "known_mailbox", lambda *_: SimpleNamespace(make_room=lambda: ready))
    started = ring.head_start(group, RUNGS, q, k, v, is_causal)
    assert started is not None
    assert started.ready is ready
    expected, found = (schedule.forward(team, q, k, v, *one) for one in ((), (started,)))
    assert rounds == [None, started]
    for x, y in zip(found, expected, strict=True):
        assert all(map(torch.equal, x, y))
