"""Data-parallel training: two processes with half of the batch each have the gradients of the whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import ladder

PROCESS = "import sys; sys.path.insert(0, sys.argv[1]); import {0}; {0}.train(int(sys.argv[2]), sys.argv[3])"
_MOST_SECONDS = 300


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)
        return ladder.attention(q, k, v, is_causal=True)[0].square().mean()


def train(rank: int, store: str) -> None:
    """Compares the gradients of all processes' halves with those of the whole batch."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    batch, layer = torch.randn(2, 9, 32), Layer()
    layer(batch).backward()
    whole = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    parallel = DistributedDataParallel(layer)
    parallel(batch[rank : rank + 1]).backward()
    for ours, expected in zip(layer.parameters(), whole, strict=True):
        torch.testing.assert_close(ours.grad, expected, rtol=1e-4, atol=1e-7)
    # Before the group: if this were its last owner, its end could wait for threads that wait for the GIL.
    del parallel
    dist.destroy_process_group()


@pytest.mark.full
def test_two_processes_have_the_gradients_of_one(tmp_path: Path) -> None:
    here, store = Path(__file__), str(tmp_path / "store")
    program = [sys.executable, "-c", PROCESS.format(here.stem), str(here.parent)]
    local = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}  # asks for no address of this machine's name
    started = [
        subprocess.Popen([*program, str(rank), store], env=local, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        for process in started:
            errors = process.communicate(timeout=_MOST_SECONDS)[1]
            assert process.returncode == 0, errors
    finally:
        for process in started:
            process.kill()
