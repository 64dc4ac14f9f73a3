"""A call is checked, chosen and built once for tensors of its kind; the rest is refused by name."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from rungs import named
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import ladder
from ladder.call import forward, gradients, hstu, native, runs
from ladder.errors import InvalidProblem, LadderError, StageError, UnsupportedProblem


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    for known in (forward._runs, gradients._runs, hstu._calls, runs._known):
        known.clear()  # type: ignore[attr-defined]


def tensors(dtype: torch.dtype = torch.float16, n: int = 16, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, 2, n, 32, generator=generator).to(dtype) for _ in range(3)]


class Counted:
    """Counts the calls of a function in the module where it is used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.calls, self._function = 0, getattr(module, name)
        monkeypatch.setattr(module, name, self)

    def __call__(self, *arguments: Any, **choices: Any) -> Any:
        self.calls += 1
        return self._function(*arguments, **choices)


def test_a_second_call_reads_no_stage_and_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    builds, reads = (Counted(monkeypatch, runs, name) for name in ("build", "discover"))
    checks = Counted(monkeypatch, forward, "problem_of_tensors")
    first = ladder.attention(*tensors(), stage="v3")
    before = (builds.calls, reads.calls, checks.calls)
    assert before == (1, 1, 1)
    again = ladder.attention(*tensors(), stage="v3")
    assert (builds.calls, reads.calls, checks.calls) == before
    assert all(map(torch.equal, first, again))
    ladder.attention(*tensors(n=17), stage="v3")
    assert (builds.calls, reads.calls, checks.calls) == (1, 1, 2)  # another size, the same build
    ladder.attention(*tensors(torch.bfloat16), stage="v3")
    assert builds.calls == 2


def test_what_a_call_depends_on_is_told_apart() -> None:
    q, k, v = tensors()
    plain, _ = ladder.attention(q, k, v, stage="v3")
    causal, _ = ladder.attention(q, k, v, is_causal=True, stage="v3")
    scaled, _ = ladder.attention(q, k, v, scale=1.0, stage="v3")
    for found, choices in ((plain, {}), (causal, {"is_causal": True}), (scaled, {"scale": 1.0})):
        expected = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), **choices)
        assert (found - expected).abs().max() < 4e-3


def test_other_stages_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ladder.attention(*tensors(), stage="v3")
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path / "missing"))
    with pytest.raises(StageError, match="which is no directory"):
        ladder.attention(*tensors(), stage="v3")


def test_int32_tensors_are_read_once_until_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Counted(monkeypatch, hstu, "hstu_problem_of_tensors")
    q, k, v = (torch.randn(20, 2, 32).half() for _ in range(3))
    offsets = torch.tensor([0, 5, 20], dtype=torch.int32)

    def call(offsets: Tensor) -> Tensor:
        return ladder.hstu_attention(q, k, v, offsets, scaling_seqlen=20, stage="h1")

    before = call(offsets)
    assert torch.equal(call(offsets), before) and read.calls == 1
    offsets[1] = 9
    after = call(offsets)
    assert read.calls == 2 and not torch.equal(after, before)
    assert torch.equal(after, call(offsets.clone())) and read.calls == 3


def test_another_cache_with_the_same_pages() -> None:
    """As of the layers of a model: the int32 tensors are the same objects, the keys and values are not."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(4, 2, 64, generator=generator).half() for _ in range(3))
    offsets, targets = (torch.tensor(values, dtype=torch.int32) for values in ([0, 4], [2]))
    numbers = [torch.tensor(values, dtype=torch.int32) for values in ([0, 2], [1, 0], [30])]
    found = []
    for _ in range(2):
        cache = torch.randn(2, 2, 32, 2, 64, generator=generator).half()
        pages = ladder.HstuPages(cache, *numbers)
        again = ladder.HstuPages(cache, *(tensor.clone() for tensor in numbers))
        o = ladder.hstu_attention(q, k, v, offsets, num_targets=targets, pages=pages)
        expected = ladder.hstu_attention(q, k, v, offsets, num_targets=targets, pages=again)
        assert torch.equal(o, expected)
        found.append(o)
    assert not torch.equal(*found)


def test_the_arguments_of_torchs_attention() -> None:
    q, k, v = tensors()
    ours, _ = ladder.attention(q, k, v, None, 0.0, True, 0.25, False, stage="v3")
    theirs = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), None, 0.0, True, scale=0.25)
    assert (ours - theirs).abs().max() < 4e-3
    with pytest.raises(UnsupportedProblem, match=r"dropout_p is 0\.1; no rung computes a dropout"):
        ladder.attention(q, k, v, dropout_p=0.1)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"scale": 1j}, "scale is 1j; it must be a number"),
        ({"scale": torch.tensor(1.0)}, r"scale is tensor\(1\.\); it must be a number"),
        ({"scale": True}, "scale is True; it must be a number"),
        ({"is_causal": None}, "is_causal is None; it must be True or False"),
        ({"stage": None}, "stage is None; it must be a name"),
        ({"options": [1]}, r"options are \[1\]; they must be a mapping"),
        ({"query": torch.randn(1, 2, 16, 32).to_sparse()}, "query is torch.sparse_coo; it must be dense"),
        ({"key": torch.randn(1, 2, 16, 32, device="meta")}, "key is on meta"),
        ({"value": "v"}, "value is a str; it must be a torch.Tensor"),
    ],
)
def test_what_is_refused_by_name(changed: dict[str, Any], message: str) -> None:
    q, k, v = tensors(torch.float32)
    with pytest.raises(InvalidProblem, match=message):
        ladder.attention(**{"query": q, "key": k, "value": v, **changed})


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused() -> None:
    parts = [torch.randn(2, n, 32) for n in (3, 5)]
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([part.transpose(0, 1) for part in parts], layout=layout)
        with pytest.raises(InvalidProblem, match="query is a nested tensor") as caught:
            ladder.attention(nested, nested, nested)
        assert "ladder.varlen_attention" in caught.value.hint


@pytest.mark.parametrize("head_dim", [80, 192])
def test_a_head_dim_that_no_rung_takes_is_named_in_few_lines(head_dim: int) -> None:
    given = torch.ones(1, 2, 8, head_dim, dtype=torch.float16, requires_grad=True)
    with pytest.raises(UnsupportedProblem, match=str(head_dim)) as caught:
        ladder.attention(given, given, given)
    assert len(str(caught.value).splitlines()) <= 4


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"window": (3,)}, r"window is \(3,\); it must be \(left, right\)"),
        ({"window": 3}, "window is 3; it must be"),
        ({"window": (-2, 0)}, r"window is \(-2, 0\); it must be"),
        ({"alpha": 1e39}, r"alpha is 1e\+39; it must be finite"),
        ({"alpha": 1j}, "alpha is 1j; it must be a number"),
        ({"cu_seqlens_q": [0, 16]}, "cu_seqlens_q is a list; it must be a torch.Tensor of int32"),
        ({"intervals": torch.zeros(1, 16)}, "intervals is torch.float32; it must be torch.int32"),
        ({"stage": None}, "stage is None; it must be a name"),
    ],
)
def test_what_hstu_refuses_by_name(changed: dict[str, Any], message: str) -> None:
    x = torch.zeros(16, 2, 32).half()
    offsets = torch.tensor([0, 16], dtype=torch.int32)
    with pytest.raises(InvalidProblem, match=message):
        ladder.hstu_attention(**{"query": x, "key": x, "value": x, "cu_seqlens_q": offsets, **changed})


def test_a_mask_of_float_intervals_is_refused() -> None:
    with pytest.raises(InvalidProblem, match=r"intervals are torch\.float32; they must be int32"):
        ladder.hstu_mask(4, 4, intervals=torch.zeros(1, 4))


@pytest.mark.usefixtures("both_functions")
def test_derivatives_that_there_are_none_of() -> None:
    q, k, v = tensors(torch.float32)

    def o(query: Tensor) -> Tensor:
        return ladder.attention(query, k, v, stage="v1")[0]

    with pytest.raises(UnsupportedProblem, match="no forward-mode derivatives"):
        torch.func.jvp(o, (q,), (q,))
    with pytest.raises(UnsupportedProblem, match="no forward-mode derivatives"), forward_ad.dual_level():
        o(forward_ad.make_dual(q, q))
    sinks = torch.zeros(q.size(1))
    with pytest.raises(UnsupportedProblem, match="no forward-mode derivatives"), forward_ad.dual_level():
        ladder.attention(q, k, v, sinks=forward_ad.make_dual(sinks, sinks))
    with pytest.raises(UnsupportedProblem, match=r"no gradients through torch\.func"):
        torch.func.grad(lambda query: o(query).sum())(q)


def test_autocast_converts_as_for_torchs_attention() -> None:
    q, k, v = tensors(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        o, _ = ladder.attention(q, k, v, stage="v3")
    assert o.dtype == torch.bfloat16
    expected, _ = ladder.attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), stage="v3")
    assert torch.equal(o, expected)


@pytest.mark.usefixtures("both_functions")
def test_checkpointed_activations_have_the_same_gradients() -> None:
    q, k, v = tensors()

    def o(query: Tensor) -> Tensor:
        return ladder.attention(query, k, v, stage="v3")[0]

    kept, recomputed = (q.clone().requires_grad_() for _ in range(2))
    o(kept).sum().backward()
    checkpoint(o, recomputed, use_reentrant=False).sum().backward()
    assert kept.grad is not None and recomputed.grad is not None
    assert torch.equal(kept.grad, recomputed.grad)


def test_an_exported_program() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ladder.attention(x, x, x, stage="v3")[0]

    x = tensors()[0]
    program = torch.export.export(Model(), (x,))
    assert torch.equal(program.module()(x), Model()(x))


@pytest.mark.usefixtures("both_functions")
def test_a_deterministic_gradient() -> None:
    q, k, v = (x.requires_grad_() for x in tensors())
    o, _ = ladder.attention(q, k, v, stage="v3", arch="sm_80", deterministic=True)
    found = torch.autograd.grad(o.sum(), (q, k, v))
    o, _ = ladder.attention(q, k, v, stage="v3", arch="sm_80", backward="b3")
    assert all(map(torch.equal, found, torch.autograd.grad(o.sum(), (q, k, v))))
    with pytest.raises(UnsupportedProblem, match=f"{named('b2')} is not deterministic"):
        ladder.attention(q, k, v, stage="v3", backward="b2", deterministic=True)


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        ("b3_same_bit", f"there is no stage 'b3_same_bit'; did you mean {named('b3')}"),
        (named("v3"), f"{named('v3')} computes attention, not attention_backward"),
        (named("x4b"), f"{named('x4b')} takes d = "),
        (None, "backward is None; it must be a name"),
    ],
)
def test_the_call_refuses_a_rung_that_cannot_compute_its_gradients(backward: Any, message: str) -> None:
    q, k, v = tensors()
    ladder.attention(q, k, v, stage="v3", backward=backward)  # has no gradients
    with pytest.raises(LadderError, match=message):
        ladder.attention(q.requires_grad_(), k, v, stage="v3", backward=backward)


def frames_of(call: Any) -> int:
    """How many functions of this package run during a call."""
    folder, count = str(Path(ladder.__file__).parent), 0

    def seen(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(folder)

    threading.setprofile(seen)  # backward passes of CUDA tensors run in threads
    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return count


def test_a_call_runs_few_functions_besides_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes host time, which a launch on a GPU waits for."""
    monkeypatch.setattr(runs, "_loaded", lambda problem, *_: (stage_of(problem), lambda *_: len))
    monkeypatch.setattr(native, "_DEVICES", {"cpu"})
    assert native.module() is not None  # or autograd.cpp does not compile
    q, k, v = tensors()
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]

    def forward_and_backward() -> None:
        o, _ = ladder.attention(*leaves)
        torch.autograd.grad(o, leaves, torch.ones_like(o))

    offsets = torch.tensor([0, 5, 16], dtype=torch.int32)
    tokens = [x[0].transpose(0, 1).contiguous().requires_grad_() for x in (q, k, v)]

    def of_hstu() -> None:
        o = ladder.hstu_attention(*tokens, offsets)
        torch.autograd.grad(o, tokens, torch.ones_like(o))

    for call, most in ((lambda: ladder.attention(q, k, v), 5), (forward_and_backward, 5), (of_hstu, 29)):
        call()
        assert frames_of(call) <= most


def stage_of(problem: Any) -> Any:
    return ladder.discover().computing(problem.operation)[-1]
