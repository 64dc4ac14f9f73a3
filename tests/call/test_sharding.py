"""DTensors: a rank's part of o, lse and the gradients, computed from its parts of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import ladder

RUNGS: dict[str, Any] = {"stage": "v3", "backward": "b2", "enable_gqa": True}


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """Rank 0 of two, whose messages arrive nowhere: a call that needed one would be wrong."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def draw(batch: int, heads: int, n: int = 20) -> Tensor:
    return torch.randn(batch, heads, n, 32, generator=torch.Generator().manual_seed(heads)).half()


def attend(tensors: Sequence[Tensor], **choices: Any) -> Any:
    q, k, v = tensors
    return ladder.attention(q, k, v, **choices)


@pytest.mark.parametrize("place", [Shard(0), Shard(1), Replicate()])
def test_each_rank_computes_its_part(mesh: DeviceMesh, place: Placement) -> None:
    local = [draw(1, heads) for heads in (4, 2, 2)]
    sharded = [DTensor.from_local(x, mesh, [place], run_check=False).requires_grad_() for x in local]
    o, lse = attend(sharded, **RUNGS)
    plain = [x.clone().requires_grad_() for x in local]
    expected = attend(plain, **RUNGS)
    found: Any
    for found, wanted in zip((o, lse), expected, strict=True):
        assert found.placements == (place,) and torch.equal(found.to_local(), wanted)
    gradients: Any = torch.autograd.grad(o.sum() + lse.sum(), sharded)
    wanted_gradients = torch.autograd.grad(expected[0].sum() + expected[1].sum(), plain)
    for found, wanted in zip(gradients, wanted_gradients, strict=True):
        assert found.placements == (place,) and torch.equal(found.to_local(), wanted)


def test_groups_of_heads_are_not_cut(mesh: DeviceMesh) -> None:
    q, k, v = (DTensor.from_local(draw(1, heads), mesh, [Replicate()]) for heads in (4, 1, 1))
    o: Any = ladder.attention(q.redistribute(mesh, [Shard(1)]), k, v, **RUNGS)[0]
    assert o.placements != (Shard(1),)


def test_gradients_of_sinks_are_a_sum_over_batches(mesh: DeviceMesh) -> None:
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 2, 16, 64, generator=generator).half() for _ in range(3))
    sinks = torch.tensor([1.0, -1.0])
    sharded = [DTensor.from_local(x, mesh, [Shard(0)], run_check=False) for x in (q, k, v)]
    of_all = DTensor.from_local(sinks, mesh, [Replicate()], run_check=False).requires_grad_()
    o, _ = attend(sharded, sinks=of_all)
    alone = sinks.clone().requires_grad_()
    [wanted] = torch.autograd.grad(ladder.attention(q, k, v, sinks=alone)[0].sum(), alone)
    seen: list[Any] = []
    of_all.register_hook(seen.append)
    torch.autograd.grad(o.sum(), of_all)
    assert seen[0].placements == (Partial(),) and torch.equal(seen[0].to_local(), wanted)
