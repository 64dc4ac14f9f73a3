"""Calls in C++ and autograd's function: when they are used, their errors, and what a pass costs in Python."""

from __future__ import annotations

import gc
import sys
import sysconfig
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ladder
from ladder.call import calls, forward, native
from ladder.errors import LadderError, StageError, ToolchainError, UnsupportedProblem

HAS_HEADERS = Path(sysconfig.get_path("include"), "Python.h").is_file()
pytestmark = pytest.mark.skipif(not HAS_HEADERS, reason="no headers of Python")


@pytest.fixture(autouse=True)
def in_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.module() is not None  # or autograd.cpp does not compile
    monkeypatch.setattr(native, "_DEVICES", {"cpu", "cuda"})
    forget()


def forget() -> None:
    forward._runs.clear()
    native.forget()


def leaves(n: int = 16) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(1, 2, n, 32, generator=generator).half().requires_grad_() for _ in range(3)]


def test_it_is_used_on_these_devices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def function() -> str:
        forget()
        return type(ladder.attention(*leaves(), stage="v3")[0].grad_fn).__name__

    assert function() == "CppFunction"
    monkeypatch.setattr(native, "_DEVICES", {"cuda"})
    assert function() != "CppFunction"


def test_without_a_compiler_the_operator_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(source: Any) -> None:
        raise ToolchainError("g++ is not there")

    monkeypatch.setattr(native, "torch_module", none)
    native._module.cache_clear()
    try:
        o, _ = ladder.attention(*leaves(), stage="v3")
        assert type(o.grad_fn).__name__ != "CppFunction"
        o.sum().backward()
    finally:
        native._module.cache_clear()


def test_the_gradients_run_no_python_besides_the_launches() -> None:
    """On a GPU, these are not Python either."""
    q, k, v = leaves()

    def both() -> None:
        torch.autograd.grad(ladder.attention(q, k, v, stage="v3")[0].sum(), (q, k, v))

    both()
    [run] = forward._runs.values()
    ran: list[str] = []

    def seen(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "/ladder/call/" in frame.f_code.co_filename:
            ran.append(frame.f_code.co_name)

    sys.setprofile(seen)
    try:
        both()
    finally:
        sys.setprofile(None)
    assert "prepare" not in ran and "backward" not in ran and "forward" not in ran and run.plan is not None


def test_a_launch_that_is_refused_names_its_reason_in_both_passes() -> None:
    """Rows at addresses that TMA does not take, of tensors whose kind is known."""

    def at(begin: int) -> Tensor:
        memory = torch.zeros(1 * 2 * 16 * 32 + 8).half()
        return memory[begin : begin + 1024].view(1, 2, 16, 32)

    q, k, v = leaves()
    ladder.attention(q, k, v, stage="v8", backward="b4b")
    with pytest.raises(UnsupportedProblem, match="aligned to 16 bytes"):
        ladder.attention(at(1).requires_grad_(), k, v, stage="v8", backward="b4b")
    o, _ = ladder.attention(q, k, v, stage="v8", backward="b4b")
    with pytest.raises(UnsupportedProblem, match="aligned to 16 bytes"):
        torch.autograd.grad(o, (q, k, v), at(1))


def test_a_graph_keeps_what_its_gradients_need() -> None:
    """The run may be forgotten before the backward pass, and the plan is freed after it."""
    q, k, v = leaves()
    o, _ = ladder.attention(q, k, v, stage="v3", backward="b2")
    [run] = forward._runs.values()
    launch = weakref.ref(run.launch)
    forget()
    del run
    gc.collect()
    assert launch() is not None
    o.sum().backward()
    expected = leaves()
    native_o, _ = ladder.attention(*expected, stage="v3", backward="b2")
    native_o.sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip((q, k, v), expected, strict=True))
    forget()
    del o, native_o
    gc.collect()
    assert launch() is None


def test_compiled_autograd_runs_it() -> None:
    plain, compiled = leaves(), leaves()
    ladder.attention(*plain, stage="v3", backward="b2")[0].sum().backward()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        ladder.attention(*compiled, stage="v3", backward="b2")[0].sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain, compiled, strict=True))


def test_what_is_no_tensor_is_refused() -> None:
    ladder.attention(*leaves(), stage="v3")
    [run] = forward._runs.values()
    plan = run.plan
    with pytest.raises(RuntimeError, match="argument 1 is no tensor"):
        native.module().apply(plan, None, *leaves()[1:], None, None, None)


def plain() -> list[Tensor]:
    return [x.detach() for x in leaves()]


def known(*call: Any, **choices: Any) -> tuple[Tensor, Tensor]:
    """A call that C++ knows."""
    ladder.attention(*call, **choices)
    return ladder.attention(*call, **choices)


def test_a_known_call_is_looked_up_in_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = plain()
    first = ladder.attention(q, k, v, stage="v3")
    monkeypatch.setattr(calls, "prepared", None)
    again = ladder.attention(q, k, v, stage="v3")
    assert all(map(torch.equal, first, again)) and again[0].data_ptr() != first[0].data_ptr()
    for other in (
        lambda: ladder.attention(q, k, v, stage="v3", is_causal=True),
        lambda: ladder.attention(q, k, v, stage="v3", scale=1.0),
        lambda: ladder.attention(q, k, v, stage="v3", is_causal=0),
        lambda: ladder.attention(q, k, v, stage="v2"),
        lambda: ladder.attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), stage="v3"),
        lambda: ladder.attention(q[..., :8, :], k, v, stage="v3"),
        lambda: ladder.attention(q, k, torch._neg_view(v), stage="v3"),
        lambda: ladder.attention(q.mT.contiguous().mT, k, v, stage="v3"),
        lambda: ladder.attention(q.requires_grad_(), k, v, stage="v3"),
    ):
        with pytest.raises(TypeError, match="not callable"):
            other()


def test_known_calls_are_right_in_any_layout() -> None:
    q, k, v = plain()
    expected, _ = ladder.attention(q, k, v, stage="v3")
    strided = [x.mT.contiguous().mT for x in (q, k, v)]
    assert torch.equal(known(*strided, stage="v3")[0], expected)
    assert torch.equal(known(q, k, torch._neg_view(-v), stage="v3")[0], expected)
    wide, sinks = [torch.cat([x, x], -1) for x in (q, k, v)], torch.tensor([1.0, 9.0, -2.0])[::2]
    found = [call(*wide, sinks=sinks, stage="x3") for call in (ladder.attention, known)]
    assert all(map(torch.equal, *found))


def test_rungs_elsewhere_are_other_rungs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known(*plain(), stage="v3")
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path / "missing"))
    with pytest.raises(StageError, match="which is no directory"):
        ladder.attention(*plain(), stage="v3")


def test_what_has_no_strides_is_refused_as_before() -> None:
    q, k, v = plain()
    known(q, k, v, stage="v3")
    nested = torch.nested.nested_tensor([q[0], q[0]])
    for query in (nested, q.to_sparse(), None):
        with pytest.raises(LadderError):
            ladder.attention(query, k, v, stage="v3")


def test_without_gradients_nobody_waits_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "calls", None)
    begun: list[None] = []
    monkeypatch.setattr(native, "_prepare_calls", lambda: begun.append(None))
    monkeypatch.setattr(native, "_in_cpp", None)
    known(*plain(), stage="v3")
    assert begun
