"""What torch may do to a call: each operation computes the same under a transform, or refuses it by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import ladder
from ladder.errors import InvalidProblem, UnsupportedProblem

#: Computes o of a query, whose other tensors may be wrapped.
Call = Callable[..., Tensor]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


#: Keys and values by shape. They are drawn here, since no transform lets draw.
KV = {
    shape: (draw(*shape, seed=1), draw(*shape, seed=2))
    for shape in ((1, 2, 16, 32), (20, 2, 64), (2, 2, 32, 64), (20, 2, 32))
}
OFFSETS, LENGTHS = ints(0, 5, 20), ints(32, 7)


def attention(query: Tensor, wrap: Any = lambda x: x, scale: Any = None) -> Tensor:
    return ladder.attention(query, *map(wrap, KV[1, 2, 16, 32]), scale=scale, stage="v3")[0]


def varlen(query: Tensor, wrap: Any = lambda x: x, scale: Any = None) -> Tensor:
    tensors = map(wrap, (*KV[20, 2, 64], OFFSETS, OFFSETS))
    return ladder.varlen_attention(query, *tensors, 15, 15, scale=scale, arch="sm_90a")


def decoding(query: Tensor, wrap: Any = lambda x: x, scale: Any = None) -> Tensor:
    return ladder.decode_attention(query, *map(wrap, (*KV[2, 2, 32, 64], LENGTHS)), scale=scale)[0]


def hstu(query: Tensor, wrap: Any = lambda x: x, scale: Any = None) -> Tensor:
    return ladder.hstu_attention(query, *map(wrap, (*KV[20, 2, 32], OFFSETS)), alpha=scale, stage="h1")


QUERIES = {attention: (1, 2, 16, 32), varlen: (20, 2, 64), decoding: (2, 4, 1, 64), hstu: (20, 2, 32)}


@pytest.fixture(params=QUERIES, ids=lambda call: call.__name__)
def call(request: pytest.FixtureRequest) -> Call:
    found: Call = request.param
    return found


@pytest.fixture
def query(call: Call) -> Tensor:
    return draw(*QUERIES[call])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_transforms_that_see_an_operator(call: Call, query: Tensor) -> None:
    o = call(query)
    queries = torch.stack([query, -query])
    assert torch.equal(torch.func.vmap(call)(queries), torch.stack([o, call(-query)]))
    assert torch.equal(torch.func.functionalize(call)(query), o)
    assert torch.equal(torch.jit.trace(call, (-query,))(query), o)


def test_a_view_of_negatives_is_what_it_shows(call: Call, query: Tensor) -> None:
    call(query)  # so that tensors like these are known
    assert torch.equal(call(torch._neg_view(query)), call(-query))


def test_tensors_without_values_have_shapes(call: Call, query: Tensor) -> None:
    with FakeTensorMode() as mode:
        o = call(mode.from_tensor(query), mode.from_tensor)
    assert (o.shape, o.dtype) == (query.shape, query.dtype)


def test_autocast_converts_tensors(call: Call, query: Tensor) -> None:
    """Those of a kernel, and those of an operator, which a dispatch mode sees."""
    o = call(query)
    with torch.autocast("cpu", torch.float16):
        assert torch.equal(call(query.float()), o)
        with FlopCounterMode(display=False):
            assert torch.equal(call(query.float()), o)


def test_a_derivative_is_not_lost(call: Call, query: Tensor) -> None:
    with pytest.raises(UnsupportedProblem, match="no forward-mode derivatives"), forward_ad.dual_level():
        call(forward_ad.make_dual(query, query))


def test_a_number_of_numpy_is_a_number(call: Call, query: Tensor) -> None:
    assert torch.equal(call(query, scale=np.float32(0.25)), call(query, scale=0.25))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("call", [attention, varlen], ids=lambda call: call.__name__)
@pytest.mark.usefixtures("both_functions")
def test_several_gradients_at_once(call: Call) -> None:
    query = draw(*QUERIES[call]).requires_grad_()
    d_o = torch.stack([draw(*query.shape, seed=seed) for seed in (3, 4)])
    [found] = torch.autograd.grad(call(query), query, d_o, is_grads_batched=True)
    each = [torch.autograd.grad(call(query), query, one)[0] for one in d_o]
    tolerance = 2.0**-10 * float(found.abs().max())  # sums of dQ have no fixed order
    torch.testing.assert_close(found, torch.stack(each), rtol=0, atol=tolerance)


def test_hstu_computes_one_gradient_at_a_time() -> None:
    query = draw(20, 2, 32).requires_grad_()
    o = hstu(query)
    with pytest.raises(UnsupportedProblem, match="hstu_attention computes one gradient at a time"):
        torch.autograd.grad(o, query, torch.ones(2, *o.shape, dtype=o.dtype), is_grads_batched=True)


def test_a_sparse_bias_is_no_expanded_one() -> None:
    """Its strides are 0, too."""
    q = draw(20, 2, 32)

    def biased(rab: Any) -> Tensor:
        return ladder.hstu_attention(q, q, q, OFFSETS, rab=rab, stage="h3")

    zeros = torch.zeros(1, 1, 1, 1).half().expand(2, 2, 15, 15)
    assert biased(zeros).isfinite().all()
    with pytest.raises(InvalidProblem, match=r"rab is torch\.sparse_coo; it must be dense"):
        biased(zeros.to_sparse())
    with pytest.raises(InvalidProblem, match="rab is a list"):
        biased([0.0])
    with pytest.raises(InvalidProblem, match=r"query is torch\.sparse_coo; it must be dense"):
        ladder.hstu_attention(q.to_sparse(), q, q, OFFSETS)
