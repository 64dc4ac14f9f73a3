"""Gradients through ladder.attention: compared with torch and finite differences, compiled, and refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from rungs import named
from torch import Tensor

import ladder
from ladder.errors import InvalidProblem, UnsupportedProblem

pytestmark = pytest.mark.usefixtures("both_functions", "fresh_compiler")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def leaves(device: str = "cpu", dtype: torch.dtype = torch.float16, n: int = 20, m: int = 30) -> list[Tensor]:
    """query (1, 4, n, 32), key and value (1, 2, m, 32)."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((1, 4, n, 32), (1, 2, m, 32), (1, 2, m, 32))
    drawn = (torch.randn(shape, generator=generator) for shape in shapes)
    return [tensor.to(device, dtype).requires_grad_() for tensor in drawn]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backward", [named("b1"), named("b2"), named("b2b"), named("b3"), "auto"])
def test_as_torch(device: str, backward: str) -> None:
    ours, theirs = leaves(device), leaves(device)
    o, _ = ladder.attention(*ours, is_causal=True, enable_gqa=True, stage="v3", backward=backward)
    F.scaled_dot_product_attention(*theirs, is_causal=True, enable_gqa=True).sum().backward()
    o.sum().backward()  # its gradient is one number, expanded
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad is not None and other.grad is not None
        assert (mine.grad - other.grad).abs().max() < 1e-2


def test_the_gradient_of_lse() -> None:
    ours, theirs = leaves(dtype=torch.float32), leaves(dtype=torch.float32)
    _, lse = ladder.attention(*ours, enable_gqa=True)
    weights = torch.arange(lse.numel()).view(lse.shape) / lse.numel()
    (lse * weights).sum().backward()
    q, k, _ = theirs
    (torch.logsumexp(q @ k.repeat_interleave(2, 1).mT / 32**0.5, -1) * weights).sum().backward()
    assert torch.allclose(ours[0].grad, q.grad, atol=1e-5) and torch.allclose(ours[1].grad, k.grad, atol=1e-5)
    assert torch.equal(ours[2].grad, torch.zeros_like(ours[2]))


@pytest.mark.filterwarnings("ignore:.*not a double precision")
def test_finite_differences() -> None:
    """Both outputs in fp32: a difference over 2e-3 has the error of rounding, 2^-24 / 2e-3, plus 1e-6."""
    small = [
        tensor[:, :1, :2].detach().contiguous().requires_grad_() for tensor in leaves(dtype=torch.float32)
    ]
    assert torch.autograd.gradcheck(ladder.attention, small, eps=1e-3, atol=2e-3, rtol=1e-2)


def test_compiled_as_one_graph() -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        o, lse = ladder.attention(q * 2, k, v, enable_gqa=True, stage="v3")
        return o.float().square().sum() + lse.sum()

    plain, compiled = leaves(), leaves()
    model(*plain).backward()
    torch.compile(model, backend="aot_eager", fullgraph=True)(*compiled).backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain, compiled, strict=True))


def test_what_torch_asks_of_an_operator() -> None:
    q, k, v = (tensor.detach() for tensor in leaves())
    o, lse = ladder.attention(q, k, v, enable_gqa=True, stage="v3")
    torch.library.opcheck(
        torch.ops.ladder.attention_backward.default,
        (torch.ones_like(o), None, q, k, v, o, lse, True),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_there_is_no_second_gradient() -> None:
    q, k, v = leaves()
    o, _ = ladder.attention(q, k, v, enable_gqa=True, stage="v3")
    [d_q] = torch.autograd.grad(o.sum(), q, create_graph=True)
    with pytest.raises(UnsupportedProblem, match="first gradients only"):
        d_q.sum().backward()


def test_a_problem_that_no_backward_stage_takes() -> None:
    x = torch.ones(1, 1, 4, 256, dtype=torch.float16, requires_grad=True)
    with pytest.raises(UnsupportedProblem, match="no stage takes d = 256; stages take 32, 64, 128"):
        ladder.attention(x, x, x)


def test_tensors_that_do_not_fit_the_forward_pass() -> None:
    q, k, v = (tensor.detach() for tensor in leaves())
    o, lse = ladder.attention(q, k, v, enable_gqa=True, stage="v3")
    right = {"d_o": torch.ones_like(o), "query": q, "key": k, "value": v, "o": o, "lse": lse, "d_lse": None}
    wrong = {
        "d_o is torch.float32; it must be torch.float16": {"d_o": torch.ones(o.shape)},
        r"d_o is \(1, 4, 5, 32\)": {"d_o": torch.ones_like(o)[:, :, :5].contiguous()},
        "o is not contiguous": {"o": torch.ones_like(o).mT.contiguous().mT},
        r"d_lse is \(1, 4, 20, 1\)": {"d_lse": lse[..., None]},
        "lse is torch.float16; it must be torch.float32": {"lse": lse.half()},
    }
    for message, change in wrong.items():
        with pytest.raises(InvalidProblem, match=message):
            torch.ops.ladder.attention_backward(**{**right, **change})


def test_a_tensor_that_was_changed_meanwhile() -> None:
    q, k, v = leaves()
    doubled = q * 2
    o, _ = ladder.attention(doubled, k, v, enable_gqa=True, stage="v3")
    doubled.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()
