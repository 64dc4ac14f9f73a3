"""What all ranks check, each on the same descriptions; test_ranks.py has it between processes."""

from __future__ import annotations

import socket
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from rungs import named

import ladder.call.distributed as several
from ladder.call.distributed import agreement
from ladder.call.distributed.agreement import COPY_ENGINES, Description, require_agreement
from ladder.call.distributed.calls import _described
from ladder.call.distributed.exchange import communicating
from ladder.call.distributed.team import Rungs
from ladder.errors import CommunicationError, InvalidProblem, LadderError

GLOO, BOTH = "cpu:gloo,cuda:gloo", "cpu:gloo,cuda:nccl"
CPU = Description(
    schedule="ring",
    batch=1,
    heads=4,
    kv_heads=2,
    head_dim=64,
    rows=10,
    dtype="float16",
    is_causal=True,
    device="cpu",
)
RUNGS = Rungs(None, "auto", "auto", "", False)
CUDA = replace(CPU, device="cuda", gpu="GPU 0 of here")


def refused(ranks: list[Description], backends: str = GLOO) -> str:
    with pytest.raises(InvalidProblem) as caught:
        require_agreement(ranks, backends)
    return str(caught.value)


def test_what_is_allowed() -> None:
    require_agreement([CPU, replace(CPU, rows=7)], GLOO)
    require_agreement([CUDA, replace(CUDA, gpu="GPU 1 of here")], BOTH)


def test_cuda_tensors_need_nccl() -> None:
    assert "the tensors are cuda tensors, and the group's backends are cpu:gloo,cuda:gloo" in refused(
        [CUDA] * 2
    )
    assert 'CUDA tensors need init_process_group("nccl")' in refused([CUDA] * 2)
    assert "the tensors are cpu tensors" in refused([CPU] * 2, "cuda:nccl")
    assert "kind of device: cpu on rank 0; cuda on rank 1" in refused([CPU, CUDA], BOTH)


def test_two_ranks_on_one_gpu() -> None:
    ranks = [CUDA, replace(CUDA, gpu="GPU 1 of here"), CUDA]
    assert "ranks 0 and 2 are both on GPU 0 of here" in refused(ranks, BOTH)


def test_heads_of_ulysses() -> None:
    ranks = [replace(CPU, schedule="ulysses")] * 4
    assert "4 query heads and 2 key heads cannot be shared by 4 ranks" in refused(ranks)


def test_an_error_of_one_rank_is_an_error_of_all() -> None:
    assert refused([CPU, Description(error="no such rung")]) == "rank 1: no such rung"


def test_without_a_group() -> None:
    assert not dist.is_initialized()
    q = torch.zeros(1, 1, 4, 32)
    with pytest.raises(LadderError, match="this process is in no process group"):
        several.attention(q, q, q)


@pytest.mark.parametrize("offsets", [None, (0, 4)])
@pytest.mark.parametrize(
    ("query", "message"),
    [
        (torch.zeros(4, 4, 4), "query has 3 dimensions; it must have 4: "),
        (None, "query is a NoneType"),
    ],
)
def test_what_is_wrong_with_a_tensor_is_described(
    query: torch.Tensor | None, message: str, offsets: tuple[int, ...] | None
) -> None:
    """A rank that raised alone would leave the others waiting."""
    found = _described(query, query, query, offsets, "ring", False, False, False, RUNGS)  # type: ignore[arg-type]
    assert message in found.error


@pytest.mark.parametrize("offsets", [None, (0, 16)])
@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (("b99", False), "there is no stage 'b99'"),
        ((named("v3"), False), f"{named('v3')} computes attention, not attention_backward"),
        ((named("b2"), True), f"{named('b2')} is not deterministic"),
    ],
)
def test_a_rung_that_cannot_compute_the_gradients_is_described(
    backward: tuple[str, bool], message: str, offsets: tuple[int, ...] | None
) -> None:
    query = torch.zeros(1, 2, 16, 64).half()
    rungs = Rungs(None, "auto", backward[0], "", backward[1])
    found = _described(query, query, query, offsets, "ring", False, False, True, rungs)
    assert message in found.error


def test_a_rank_can_do_without_copy_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    query = torch.zeros(1, 2, 16, 64).half()
    for value, wanted in ((None, socket.gethostname()), ("0", "")):
        monkeypatch.delenv(COPY_ENGINES, raising=False)
        if value is not None:
            monkeypatch.setenv(COPY_ENGINES, value)
        found = _described(query, query, query, None, "ring", False, False, False, RUNGS)
        assert found.copies_on == wanted


def test_a_graph_does_without_copy_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_capturing in (True, False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda found=is_capturing: found)
        assert agreement._may_copy(torch.device("cuda")) is not is_capturing


def test_an_earlier_error_on_one_rank() -> None:
    """Its blocks of the next call would be taken for those of the last one."""
    require_agreement([replace(CPU, blocks=3)] * 2, GLOO)
    with pytest.raises(CommunicationError, match="the ranks have sent 3, 2 blocks: an error ended"):
        require_agreement([replace(CPU, blocks=3), replace(CPU, blocks=2)], GLOO)


def test_a_scale_of_numpy() -> None:
    query = torch.zeros(1, 2, 16, 64).half()
    rungs = replace(RUNGS, scale=np.float32(0.5))
    found = _described(query, query, query, None, "ring", False, False, False, rungs)
    assert found.error == "" and type(found.scale) is float


def test_an_error_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_rank", lambda group: 3)
    with (
        pytest.raises(CommunicationError, match="rank 3 lost the other ranks: DistNetworkError"),
        communicating(None),  # type: ignore[arg-type]
    ):
        raise dist.DistNetworkError("")
