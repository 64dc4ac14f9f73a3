"""Tensors without memory of their own: torch's zero tensors are zeros, others are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

import ladder
from ladder.errors import InvalidProblem


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()


def zero(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    return torch._efficientzerotensor(shape, dtype=dtype)


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


OFFSETS, LENGTHS = ints(0, 5, 20), ints(32, 7)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ladder.attention(q, k, v, stage="v3")[0]


def varlen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    o = ladder.varlen_attention(q, k, v, OFFSETS, OFFSETS, 15, 15, arch="sm_90a")
    assert isinstance(o, Tensor)
    return o


def hstu(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ladder.hstu_attention(q, k, v, OFFSETS, stage="h1")


def decoding(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ladder.decode_attention(q, k, v, LENGTHS)[0]


Call = Callable[[Tensor, Tensor, Tensor], Tensor]
DIFFERENTIABLE = {attention: (1, 2, 16, 32), varlen: (20, 2, 64), hstu: (20, 2, 32)}
CALLS = {**DIFFERENTIABLE, decoding: (2, 2, 32, 64)}


def queries(call: Call) -> tuple[int, ...]:
    """The shape of a call's query; that of its keys is in :data:`CALLS`."""
    return (2, 4, 1, 64) if call is decoding else CALLS[call]


def inputs(call: Call) -> list[Tensor]:
    return [draw(*queries(call)), draw(*CALLS[call], seed=1), draw(*CALLS[call], seed=2)]


@pytest.fixture(params=CALLS, ids=lambda call: call.__name__)
def call(request: pytest.FixtureRequest) -> Call:
    found: Call = request.param
    return found


@pytest.mark.parametrize("place", range(3))
def test_an_input_may_be_a_zero_tensor(call: Call, place: int) -> None:
    """Before and after tensors like it are known."""
    given, plain = inputs(call), inputs(call)
    given[place], plain[place] = zero(*given[place].shape), torch.zeros_like(given[place])
    found = call(*given)
    assert torch.equal(found, call(*plain)) and torch.equal(found, call(*given))


@pytest.mark.parametrize("call", DIFFERENTIABLE, ids=lambda call: call.__name__)
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.usefixtures("both_functions")
def test_the_gradient_of_o_may_be_a_zero_tensor(call: Call, is_transposed: bool) -> None:
    tensors = [x.requires_grad_() for x in inputs(call)]
    o = call(*tensors)
    torch.autograd.grad(o, tensors, draw(*o.shape, seed=3), retain_graph=True)  # such gradients are known
    d_o = zero(*o.transpose(-2, -3).shape).transpose(-2, -3) if is_transposed else zero(*o.shape)
    assert all(float(x.abs().max()) == 0 for x in torch.autograd.grad(o, tensors, d_o))


@pytest.mark.usefixtures("both_functions")
def test_the_gradient_of_lse_may_be_a_zero_tensor() -> None:
    """Without a gradient of o, it then says that there is none."""
    tensors = [x.requires_grad_() for x in inputs(attention)]
    _, lse = ladder.attention(*tensors, stage="v3")
    found = torch.autograd.grad(lse, tensors, zero(*lse.shape, dtype=torch.float32))
    assert all(float(x.abs().max()) == 0 for x in found)


@pytest.mark.usefixtures("both_functions")
def test_a_zero_tensor_that_was_saved_has_gradients() -> None:
    """Keys of zero: all weights are equal, and d_query is 0."""
    q, _, v = inputs(attention)
    k = zero(*q.shape).requires_grad_()
    q.requires_grad_()
    dq, dk = torch.autograd.grad(attention(q, k, v), (q, k), draw(*q.shape, seed=3))
    assert float(dq.abs().max()) == 0 < float(dk.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sinks_may_be_a_zero_tensor(dtype: torch.dtype) -> None:
    q, k, v = inputs(varlen)
    q, k, v = (x[None].transpose(1, 2) for x in (q, k, v))
    outputs = [
        ladder.attention(q, k, v, sinks=sinks, arch="sm_90a")
        for sinks in (zero(2, dtype=dtype), torch.zeros(2), zero(2, dtype=dtype))
    ]
    assert all(torch.equal(x, y) for one in outputs[1:] for x, y in zip(one, outputs[0], strict=True))


def test_numbers_may_be_a_zero_tensor() -> None:
    q, k, v = inputs(decoding)
    o, lse = ladder.decode_attention(q, k, v, zero(2, dtype=torch.int32))
    assert float(o.abs().max()) == 0 and bool((lse == -torch.inf).all())
    pages = zero(2, 1, dtype=torch.int32)
    first = ladder.decode_attention(q, k, v, LENGTHS, torch.zeros_like(pages).clone())[0]
    assert torch.equal(ladder.decode_attention(q, k, v, LENGTHS, pages)[0], first)
    q, k, v = inputs(hstu)
    none = ladder.hstu_attention(q, k, v, OFFSETS, num_targets=zero(2, dtype=torch.int32), stage="h2")
    assert torch.equal(none, ladder.hstu_attention(q, k, v, OFFSETS, num_targets=ints(0, 0), stage="h2"))


def test_nothing_is_stored_in_a_zero_tensor() -> None:
    q, k, v = inputs(decoding)
    new, before = draw(2, 2, 1, 64), k.clone()
    with pytest.raises(InvalidProblem, match=r"^v_cache is torch's zero tensor: nothing can be stored"):
        ladder.decode_attention(q, k, zero(*v.shape), LENGTHS, k_new=new, v_new=new)
    assert torch.equal(k, before)


def freed(like: Tensor) -> Tensor:
    tensor = like.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def freed_part(like: Tensor, dim: int = 0) -> Tensor:
    """A view that was made before: its address is not 0, but the place in the storage."""
    part = torch.stack([like, like], dim).select(dim, 1)
    part.untyped_storage().resize_(0)
    return part


def shortened(like: Tensor) -> Tensor:
    tensor = like.clone()
    tensor.untyped_storage().resize_(10)
    return tensor


def left_over(like: Tensor) -> Tensor:
    kept: list[Tensor] = []
    torch.func.vmap(lambda x: (kept.append(x), x)[1])(like[None])
    return kept[0]


@pytest.mark.parametrize("name", ["v_cache", "v_new"])
def test_nothing_is_stored_unless_all_is_in_memory(name: str) -> None:
    q, k, v = inputs(decoding)
    new, before = draw(2, 2, 1, 64), k.clone()
    given = {"v_cache": v, "k_new": new, "v_new": new}
    given[name] = freed(given[name])
    with pytest.raises(InvalidProblem, match=f"^{name} has no memory"):
        ladder.decode_attention(q, k, seqused_k=LENGTHS, **given)
    assert torch.equal(k, before)


def test_numbers_on_meta_are_named() -> None:
    q, k, v = inputs(decoding)
    with pytest.raises(InvalidProblem, match=r"^seqused_k is on meta, where tensors have no memory"):
        ladder.decode_attention(q, k, v, LENGTHS.to("meta"))


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    "made, why",
    [
        (freed, "has no memory: its storage was resized to 0 bytes"),
        (freed_part, "has no memory: its storage was resized to 0 bytes"),
        (shortened, "has elements outside of its storage, which was resized to 10 bytes"),
        (left_over, "belongs to a transform"),
    ],
)
def test_inputs_without_memory_are_named(call: Call, place: int, made: Any, why: str) -> None:
    """First where tensors like these are not known."""
    given = [x[..., :] for x in inputs(call)]
    names = ("query|q", "(k_cache|key|k)", "(v_cache|value|v)")
    for is_known in (False, True):
        if is_known:
            call(*given)
        with pytest.raises(InvalidProblem, match=f"^({names[place]}) {why}"):
            call(*[made(x) if i == place else x for i, x in enumerate(given)])


@pytest.mark.parametrize("call", [attention, varlen], ids=lambda call: call.__name__)
def test_inputs_to_be_copied_are_in_memory(call: Call) -> None:
    """torch would copy from any address."""
    given = [torch.stack([x, x], dim=-1)[..., 1] for x in inputs(call)]
    call(*given)
    with pytest.raises(InvalidProblem, match="has no memory: its storage was resized to 0 bytes"):
        call(given[0], freed_part(given[1], -1), given[2])


def fake(like: Tensor) -> Tensor:
    with FakeTensorMode():
        return torch.empty(like.shape, dtype=like.dtype)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("call", [attention, varlen], ids=lambda call: call.__name__)
@pytest.mark.parametrize(
    "made, why",
    [
        (freed, "d_o has no memory: its storage was resized to 0 bytes"),
        (freed_part, "d_o has no memory: its storage was resized to 0 bytes"),
        (left_over, "d_o belongs to a transform of torch.func that has ended"),
        (fake, "d_o is of type FakeTensor, without memory of its own"),
        (torch._to_functional_tensor, "d_o is a functional tensor, without memory of its own"),
    ],
)
@pytest.mark.usefixtures("both_functions")
def test_gradients_without_memory_are_named(call: Call, made: Any, why: str) -> None:
    tensors = [x.requires_grad_() for x in inputs(call)]
    o = call(*tensors)
    with pytest.raises(InvalidProblem, match=why):
        torch.autograd.grad(o, tensors, made(draw(*o.shape, seed=3)))
