"""The adapters of tools/measure/measure_hstu_peers.py: stubs of both packages, on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ladder.errors import LadderError
from ladder.operations import HstuBackwardProblem, HstuProblem, hstu_mask, operation_of
from tools.measure import measure_hstu_peers as peers
from tools.measure.side_by_side import Checker

KINDS = [HstuProblem, HstuBackwardProblem]


def attend_sequences(
    qkv: Sequence[Tensor],
    offsets: Sequence[Tensor],
    numbers: Sequence[Tensor | None],
    rules: tuple[int, tuple[int, int]],
    alpha: float,
    length: int,
) -> Tensor:
    """HSTU attention in fp32. ``numbers`` count contexts and targets; ``rules`` are group size and window."""
    q, k, v = (x.float() for x in qkv)
    queries, keys = (pairwise(one.tolist()) for one in offsets)
    parts = []
    for b, ((q0, q1), (k0, k1)) in enumerate(zip(queries, keys, strict=True)):
        contexts, targets = (0 if one is None else int(one[b]) for one in numbers)
        seen = hstu_mask(q1 - q0, k1 - k0, contexts, targets, *rules)
        weights = F.silu(alpha * torch.einsum("nhd,mhd->hnm", q[q0:q1], k[k0:k1])) * seen
        parts.append(torch.einsum("hnm,mhd->nhd", weights, v[k0:k1]) / length)
    return torch.cat(parts).to(qkv[0].dtype)


def recsys_stub() -> ModuleType:
    stub = ModuleType("hstu_attn_interface")

    def hstu_attn_varlen_func(  # type: ignore[no-untyped-def]
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, num_contexts, num_targets,
        target_group_size, window_size, alpha, scaling_seqlen,
    ):  # fmt: skip
        assert max_seqlen_q == cu_seqlens_q.diff().max() and max_seqlen_k == cu_seqlens_k.diff().max()
        rules = (target_group_size, window_size)
        numbers = (num_contexts, num_targets)
        return attend_sequences(
            (q, k, v), (cu_seqlens_q, cu_seqlens_k), numbers, rules, alpha, scaling_seqlen
        )

    stub.hstu_attn_varlen_func = hstu_attn_varlen_func  # type: ignore[attr-defined]
    return stub


class Autotuner:
    def __init__(self) -> None:
        self.cache: dict[Any, Any] = {}


@pytest.fixture
def triton_stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Stands for generative-recommenders' module; its tuner notes the calls whose choice it would keep."""
    triton, runtime = ModuleType("triton"), ModuleType("triton.runtime")
    triton.__version__, runtime.Autotuner = "3.0", Autotuner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.runtime", runtime)
    stub = ModuleType("triton_hstu_attention")
    stub.tuner = tuner = Autotuner()  # type: ignore[attr-defined]

    def triton_hstu_mha(  # type: ignore[no-untyped-def]
        N, alpha, q, k, v, seq_offsets, num_targets=None, max_attn_len=0, contextual_seq_len=0,
        sort_by_length=False, enable_tma=False,
    ):  # fmt: skip
        tuner.cache[N, contextual_seq_len, enable_tma] = "a choice"
        contexts = torch.full((len(seq_offsets) - 1,), contextual_seq_len)
        numbers = (contexts, num_targets)
        return attend_sequences((q, k, v), (seq_offsets,) * 2, numbers, (1, (-1, 0)), alpha, N)

    stub.triton_hstu_mha = triton_hstu_mha  # type: ignore[attr-defined]
    yield stub


def errors(adapter: Any, problem: HstuProblem) -> Mapping[str, float]:
    inputs = operation_of(problem).make_inputs(problem)
    checker = Checker(problem, inputs)
    return {name: checker.error(make()()) for name, _, make in adapter.contenders(problem, inputs)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "mask",
    [
        {},
        {"contexts": (3, 5), "targets": (11, 4), "target_group_size": 3},
        {"kv_lens": (40, 17), "window": (9, 0), "alpha": 0.3, "scaling_seqlen": 64},
    ],
    ids=["causal", "groups of targets", "window"],
)
def test_recsys_examples_is_called_with_the_problems_rules(kind: type[HstuProblem], mask: Any) -> None:
    problem = kind(2, 16, (33, 17), dtype="bf16", **mask)
    [(name, error)] = errors(peers.RecsysHstu(recsys_stub(), "1"), problem).items()
    assert name == "recsys-examples" and 0 < error <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", [{}, {"contexts": (3, 3), "targets": (11, 4)}], ids=["causal", "targets"])
def test_generative_recommenders_is_called_with_the_problems_rules(
    kind: type[HstuProblem], mask: Any, triton_stub: ModuleType
) -> None:
    problem = kind(2, 16, (33, 17), dtype="bf16", **mask)
    found = errors(peers.TritonHstu(triton_stub, "1"), problem)
    assert [*found] == ["generative-recommenders", "generative-recommenders, TMA"]
    assert all(0 < error <= 1 for error in found.values())


def test_each_problem_and_variant_is_tuned_for_itself(triton_stub: ModuleType) -> None:
    plain = HstuProblem(2, 16, (33, 17), dtype="bf16")
    adapter = peers.TritonHstu(triton_stub, "")
    runs = []
    for problem in (plain, replace(plain, contexts=(3, 3))):
        inputs = operation_of(problem).make_inputs(problem)
        runs += [make() for _, _, make in adapter.contenders(problem, inputs)]
    expected = [(33, contexts, tma) for contexts in (0, 3) for tma in (False, True)]
    for order in ((0, 1, 2, 3), (2, 0, 3, 1)):
        for i in order:
            runs[i]()
            assert [*triton_stub.tuner.cache] == [expected[i]]


PLAIN = HstuProblem(2, 16, (33, 17), dtype="bf16")


@pytest.mark.parametrize(
    "fields",
    [
        {"targets": (8, 4), "target_group_size": 4},
        {"contexts": (3, 5)},
        {"kv_lens": (40, 17)},
        {"window": (9, 0)},
        {"intervals": True},
        {"bias_heads": 1},
        {"scaling_seqlen": 64},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_generative_recommenders_leaves_out_what_it_cannot_match(fields: Any) -> None:
    assert peers.takes(PLAIN)
    assert not peers.takes(replace(PLAIN, **fields))


def test_recsys_examples_leaves_out_a_bias_and_intervals() -> None:
    adapter = peers.RecsysHstu(recsys_stub(), "")
    for fields in ({"bias_heads": 1}, {"intervals": True}):
        assert not [*adapter.contenders(replace(PLAIN, **fields), {})]


def test_problems_are_the_bench_problems_without_a_bias() -> None:
    found = peers.problems(["forward", "backward"])
    assert [type(one) for one in found] == [HstuProblem] * 8 + [HstuBackwardProblem] * 8
    assert {one.head_dim for one in found} == {64, 128}
    assert not any(one.bias_heads for one in found)


def test_a_peer_that_is_not_installed_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert peers.chosen_peers({"recsys": None}) == []
    said = capsys.readouterr().err
    assert said == "recsys-examples is left out: No module named 'hstu_attn_interface'\n"


def test_a_peer_is_imported_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "hstu_attn_interface.py").write_text("hstu_attn_varlen_func, __version__ = print, '3'")
    try:
        [contenders] = peers.chosen_peers({"recsys": tmp_path})
    finally:
        sys.modules.pop("hstu_attn_interface", None)
    assert [version for _, version, _ in contenders(PLAIN, dict.fromkeys(INPUT_NAMES))] == ["3"]


INPUT_NAMES = ("cu_seqlens_q", "cu_seqlens_k", "num_contexts", "num_targets")


def test_a_folder_without_the_peer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    expected = (
        f"hstu_attn_interface cannot be imported from {tmp_path}: No module named 'hstu_attn_interface'"
    )
    with pytest.raises(LadderError) as caught:
        peers.chosen_peers({"recsys": tmp_path})
    assert str(caught.value) == expected
    words = ["--out", str(tmp_path), "--peers", "recsys", "--recsys-hstu", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["measure_hstu_peers.py", *words])
    assert peers.main() == 2
    assert capsys.readouterr().err == f"error: {expected}\n"
