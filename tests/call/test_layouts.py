"""q, k, v and the gradient of o with strides: the same results, without a copy where the rung takes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from rungs import named
from torch import Tensor

import ladder
from ladder.call import forward, gradients
from ladder.errors import UnsupportedProblem

B, H, N, D = 2, 2, 40, 32


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).half()


def fused() -> list[Tensor]:
    """Slices of a projection to q, k and v: (B, N, 3, H, d)."""
    return [x.transpose(1, 2) for x in draw(B, N, 3, H, D).unbind(2)]


def viewed() -> list[Tensor]:
    return [draw(B, N, H * D).view(B, N, H, D).transpose(1, 2) for _ in range(3)]


def permuted() -> list[Tensor]:
    return [draw(N, B, H, D).permute(1, 2, 0, 3) for _ in range(3)]


def sliced() -> list[Tensor]:
    """Every other row of the second half of the heads."""
    return [draw(B, 2 * H, 2 * N, D)[:, H:, ::2] for _ in range(3)]


def single() -> list[Tensor]:
    """One head of one batch, whose strides there mean nothing."""
    return [draw(1, N, 5 * D)[:, :, D : 2 * D].view(1, N, 1, D).transpose(1, 2) for _ in range(3)]


def columns() -> list[Tensor]:
    """Rows that are no rows in memory."""
    return [draw(B, H, D, N).mT for _ in range(3)]


def expanded() -> list[Tensor]:
    """Heads that share their memory."""
    return [draw(B, 1, N, D).expand(B, H, N, D) for _ in range(3)]


def unaligned() -> list[Tensor]:
    """Rows of 33 elements, which do not begin at multiples of 16 bytes."""
    return [draw(B, H, N, D + 1)[..., :D] for _ in range(3)]


def apart() -> list[Tensor]:
    """Heads 40 elements apart, which is no multiple of a row."""
    return [draw(B, N, H, D + 8)[..., :D].transpose(1, 2) for _ in range(3)]


TAKEN = [fused, viewed, permuted, sliced, single]
COPIED = [columns, expanded, unaligned, apart]


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    forward._runs.clear()
    gradients._runs.clear()


@pytest.mark.parametrize("layout", [*TAKEN, *COPIED], ids=lambda layout: layout.__name__)
def test_any_strides(layout: Callable[[], list[Tensor]]) -> None:
    q, k, v = layout()
    o, lse = ladder.attention(q, k, v, is_causal=True, stage="v8")
    [run] = forward._runs.values()
    assert list(run.copied) == ([] if layout in TAKEN else ["q", "k", "v"])
    plain = ladder.attention(*(x.contiguous() for x in (q, k, v)), is_causal=True, stage="v8")
    assert torch.equal(o, plain[0]) and torch.equal(lse, plain[1])
    assert o.is_contiguous() and lse.is_contiguous()


def test_rungs_without_strides_get_copies() -> None:
    q, k, v = fused()
    o, _ = ladder.attention(q, k, v, stage="v3")
    [run] = forward._runs.values()
    assert list(run.copied) == ["q", "k", "v"]
    assert torch.equal(o, ladder.attention(*(x.contiguous() for x in (q, k, v)), stage="v3")[0])


@pytest.mark.parametrize("backward, copied", [(named("b1"), ["q", "k", "v", "d_o"]), (named("b4b"), [])])
@pytest.mark.usefixtures("both_functions")
def test_gradients_of_strided_tensors(backward: str, copied: list[str]) -> None:
    d_o = draw(B, N, H, D).transpose(1, 2)
    found = []
    for leaf in (draw(B, N, 3, H, D), draw(3, B, H, N, D).zero_()):
        qkv = leaf.requires_grad_()
        if qkv.shape[0] == B:
            q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
        else:
            q, k, v = (x.detach().contiguous().requires_grad_() for x in fused())
        o, _ = ladder.attention(q, k, v, stage="v8", backward=backward)
        found.append(torch.autograd.grad(o, (q, k, v), d_o if qkv.shape[0] == B else d_o.contiguous()))
    strided, _ = gradients._runs.values()
    assert list(strided.copied) == copied
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() <= 2**-10 * b.abs().max()  # sums of dQ have no fixed order


def test_a_tensor_at_an_odd_address_is_refused() -> None:
    def beginning(at: int) -> tuple[Tensor, ...]:
        wide = draw(B, N, 3 * H * D + 8)[..., at : at + 3 * H * D]
        return wide.view(B, N, 3, H, D).transpose(1, 3).unbind(2)

    ladder.attention(*beginning(0), stage="v8")  # so that their kind is known
    with pytest.raises(UnsupportedProblem, match="aligned to 16 bytes") as caught:
        ladder.attention(*beginning(1), stage="v8")
    assert caught.value.hint == "Not at a multiple of 16 bytes: q, k, v. A copy is: q.clone()."


@pytest.mark.usefixtures("both_functions")
def test_views_of_negatives_are_copied() -> None:
    """As of a complex tensor: the imaginary part of its conjugate is in memory as the negative of that."""
    d_o = draw(B, H, N, D)
    found = []
    for view, view_of_d_o in itertools.product((torch.neg, torch._neg_view), repeat=2):
        q, k, v = (x.clone().requires_grad_() for x in viewed())
        o, lse = ladder.attention(view(q), view(k), view(v), stage="v8", backward="b3")
        d_outputs = view_of_d_o(d_o), view_of_d_o(d_o[..., 0].float())
        found.append((o, lse, *torch.autograd.grad((o, lse), (q, k, v), d_outputs)))
    assert all(torch.equal(a, b) for one in found for a, b in zip(one, found[0], strict=True))


@pytest.mark.usefixtures("both_functions")
def test_saved_tensors_may_come_back_with_other_strides() -> None:
    """As from the host's memory, where a slice becomes contiguous."""
    found = []
    for saved in (torch.Tensor.contiguous, torch.Tensor.detach):
        leaf = draw(B, N, 3, H, D).requires_grad_()
        q, k, v = (x.transpose(1, 2) for x in leaf.unbind(2))
        with torch.autograd.graph.saved_tensors_hooks(saved, lambda x: x):
            o, _ = ladder.attention(q, k, v, stage="v8", backward="b3")
        found.append(torch.autograd.grad(o, leaf, draw(B, H, N, D))[0])
    assert torch.equal(*found)
