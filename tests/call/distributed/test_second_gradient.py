"""A second gradient is refused, not left out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ladder.call.distributed.calls import _Attention

#: o is q, and lse a sum of its rows.
STUB = SimpleNamespace(
    forward=lambda team, q, k, v: (q * 1, q.sum(-1), (q,)),
    backward=lambda team, saved, d_o, d_lse: (d_o, d_o, d_o),
)


def test_a_second_gradient_is_refused_though_that_of_o_is_a_constant() -> None:
    q = torch.ones(1, 2, 3, 4, requires_grad=True)
    o, _ = _Attention.apply(q, q, q, None, STUB)
    [first] = torch.autograd.grad(o.sum(), q, create_graph=True)
    assert torch.equal(first, torch.full_like(q, 3))
    with pytest.raises(RuntimeError, match="twice"):
        first.sum().backward()
