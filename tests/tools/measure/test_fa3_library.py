"""FlashAttention-3 as a library of operators (tools/measure/fa3_library.py): a stub of it, on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ladder.errors import LadderError
from ladder.operations import BackwardProblem, Problem, operation_of
from tools.measure import measure_peers as peers
from tools.measure.fa3_library import FlashAttention3

SIZES: Any = {"dtype": "bf16", "is_causal": True}
PROBLEM, GRADIENTS = Problem(1, 2, 48, 48, 32, **SIZES), BackwardProblem(1, 2, 48, 48, 32, **SIZES)
GROUPED = BackwardProblem(1, 4, 48, 48, 32, kv_heads=2, **SIZES)

CHOICES = "float? softmax_scale=None, bool is_causal=False"
FORWARD = (
    f"fwd(Tensor q, Tensor k, Tensor v, Tensor(a!)? out=None, int num_splits=0, {CHOICES})"
    " -> (Tensor(a!), Tensor)"
)
BACKWARD = (
    "bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, "
    f"Tensor(a!)? dq=None, Tensor(b!)? dk=None, Tensor(c!)? dv=None, {CHOICES}) -> "
)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, is_causal: bool) -> Tensor:
    """Attention of (batch, rows, heads, d)."""
    q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)
    return o.transpose(1, 2)


def forward(q, k, v, out, num_splits, softmax_scale, is_causal):  # type: ignore[no-untyped-def]
    assert num_splits == 1 and q.is_contiguous()
    out.copy_(attend(q, k, v, softmax_scale, is_causal))
    return out, torch.full((7,), 7.0)


def backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, softmax_scale, is_causal):  # type: ignore[no-untyped-def]
    assert torch.equal(softmax_lse, torch.full((7,), 7.0))
    assert torch.allclose(out.float(), attend(q, k, v, softmax_scale, is_causal), atol=0.02)
    with torch.enable_grad():
        q, k, v = (x.detach().float().requires_grad_() for x in (q, k, v))
        found = torch.autograd.grad(attend(q, k, v, softmax_scale, is_causal), (q, k, v), dout.float())
    for given, gradient in zip((dq, dk, dv), found, strict=True):
        given.copy_(gradient)
    return tuple(torch.empty(0) for _ in range(8))


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.library.Library]:
    """What loading a library registers; the operators are defined by the test."""
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    with torch.library._scoped_library("flash_attn_3s", "DEF") as made:
        yield made


def stub(namespace: torch.library.Library, returned: int = 8) -> FlashAttention3:
    results = ", ".join(["Tensor"] * returned)
    for signature, function in ((FORWARD, forward), (f"{BACKWARD}({results})", backward)):
        namespace.define(signature)
        namespace.impl(signature.partition("(")[0], function, "CompositeExplicitAutograd")
    return FlashAttention3(Path("/nowhere/_C.so"))


@pytest.mark.parametrize("problem", [PROBLEM, GRADIENTS], ids=["forward", "gradients"])
def test_its_operators_are_called_and_checked(problem: Problem, namespace: torch.library.Library) -> None:
    inputs = operation_of(problem).make_inputs(problem)
    [(name, version, make)] = stub(namespace).contenders(problem, inputs)
    assert (name, version) == ("FlashAttention-3", "operators as in xformers 0.0.34")
    assert 0 < peers.Checker(problem, inputs).error(make()()) <= 1


@pytest.mark.parametrize("returned, build", [(5, "commit 0251105a"), (4, "an unknown build")])
def test_builds_are_told_by_their_signatures(
    returned: int, build: str, namespace: torch.library.Library
) -> None:
    assert stub(namespace, returned).version == f"operators as in {build}"


def test_gradients_of_grouped_heads_are_left_out(namespace: torch.library.Library) -> None:
    assert not [*stub(namespace).contenders(GROUPED, {})]


def test_other_signatures_are_named(namespace: torch.library.Library) -> None:
    namespace.define(FORWARD.replace("bool is_causal", "bool causal"))
    with pytest.raises(
        LadderError, match=r"flash_attn_3s::fwd takes \(q, k, v, out, .*, causal\); it is called with"
    ):
        FlashAttention3(Path("/nowhere/_C.so"))


def test_a_library_without_the_operators_is_named(namespace: torch.library.Library) -> None:
    with pytest.raises(LadderError, match=r"/nowhere/_C.so registers no operator flash_attn_3::fwd"):
        FlashAttention3(Path("/nowhere/_C.so"))
    namespace.define(FORWARD)
    with pytest.raises(LadderError, match=r"no operator flash_attn_3s::bwd"):
        FlashAttention3(Path("/nowhere/_C.so"))


def test_it_takes_the_interfaces_place(
    namespace: torch.library.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(namespace)
    monkeypatch.setitem(sys.modules, "flash_attn_interface", torch)
    for library, expected in ((None, ["FlashAttention-3"]), (Path("/nowhere/_C.so"), [])):
        chosen = peers.chosen_peers(["flash"], library)
        assert [
            name for name, _, _ in chosen[0](PROBLEM, operation_of(PROBLEM).make_inputs(PROBLEM))
        ] == expected
    assert len(chosen) == 2


@pytest.mark.parametrize("broken", ["_C.so", "libcudart.so.12"])
def test_files_that_do_not_load_are_named(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / broken).write_text("no library")
    library = tmp_path / "_C.so"
    monkeypatch.setattr(
        sys, "argv", ["measure_peers.py", "--out", str(tmp_path), "--fa3-library", str(library)]
    )
    assert peers.main() == 2
    assert f"error: {tmp_path / broken} cannot be loaded: {tmp_path / broken}: " in capsys.readouterr().err
