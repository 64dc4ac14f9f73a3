"""ladder.norm_gate against torch in float64: values, gradients in all their forms, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ladder
from ladder.call import gating
from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations import NORM_GATE_EPSILON, get_operation, norm_gate_takes_cols
from ladder.run.evaluation import evaluate

ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def draw(rows: int, cols: int, dtype: torch.dtype = torch.float16) -> list[Tensor]:
    """x, gate, weight and bias as leaves."""
    chance = torch.Generator().manual_seed(cols)
    matrices = [torch.randn(rows, cols, generator=chance).to(dtype) for _ in range(2)]
    vectors = [torch.randn(cols, generator=chance) for _ in range(2)]
    return [x.requires_grad_() for x in (*matrices, *vectors)]


def exact(x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[1],), weight, bias, NORM_GATE_EPSILON) * gate


def require_close(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> None:
    """Requires errors within two roundings of the largest element."""
    assert (ours.double() - theirs).abs().max() <= 2 * ROUNDING[dtype] * theirs.abs().max()


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("cols", [64, 128, 192, 512, 1024, 1088, 2048])
def test_values_and_gradients(cols: int, dtype: torch.dtype) -> None:
    leaves = draw(21, cols, dtype)
    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    d_y = torch.randn(21, cols, generator=torch.Generator().manual_seed(1)).to(dtype)
    y, expected = ladder.norm_gate(*leaves), exact(*doubles)
    assert y.dtype == dtype
    require_close(y, expected, dtype)
    gradients = torch.autograd.grad(expected, doubles, d_y.double())
    for leaf, ours, theirs in zip(leaves, torch.autograd.grad(y, leaves, d_y), gradients, strict=True):
        assert ours.dtype == leaf.dtype
        require_close(ours, theirs, dtype)


def test_all_forms_of_the_gradient_are_equal() -> None:
    """xh from x or from the norm's output n; r in front of the means or within; autograd; the kernel."""
    cols = 192
    x, gate, weight, bias = (leaf.detach().double() for leaf in draw(21, cols))
    d_y = torch.randn(21, cols, generator=torch.Generator().manual_seed(1)).half().double()
    x.requires_grad_()
    n = F.layer_norm(x, (cols,), weight, bias, NORM_GATE_EPSILON)
    [of_autograd] = torch.autograd.grad(n * gate, x, d_y)

    def mean(values: Tensor) -> Tensor:
        return values.mean(-1, keepdim=True)

    x, n, g = x.detach(), n.detach(), d_y * gate * weight
    r = (mean((x - mean(x)) ** 2) + NORM_GATE_EPSILON).rsqrt()
    of_x, of_n = (x - mean(x)) * r, (n - bias) / weight
    forms = [r * (g - mean(g) - xh * mean(g * xh)) for xh in (of_x, of_n)]
    forms += [r * g - mean(r * g) - xh * mean(r * g * xh) for xh in (of_x, of_n)]
    for form in forms:
        torch.testing.assert_close(form, of_autograd, rtol=1e-9, atol=1e-12)

    leaves = draw(21, cols)
    [of_kernel] = torch.autograd.grad(ladder.norm_gate(*leaves), leaves[:1], d_y.half())
    require_close(of_kernel, of_autograd, torch.float16)


def test_a_weight_of_0_hides_x_in_the_output_and_not_from_the_kernel() -> None:
    """n is the bias there, so xh cannot be had from it; the kernel has it from x."""
    x, gate, weight, bias = draw(21, 64)
    weight = weight.detach().clone().index_fill_(0, torch.arange(0, 64, 3), 0).requires_grad_()
    leaves = [x, gate, weight, bias]
    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    ours = torch.autograd.grad(ladder.norm_gate(*leaves).sum(), leaves)
    for one, other in zip(ours, torch.autograd.grad(exact(*doubles).sum(), doubles), strict=True):
        require_close(one, other, torch.float16)


def test_blocks_that_compute_more_than_16_rows() -> None:
    """265 times 16 rows on 264 blocks."""
    problem = get_operation("norm_gate_backward").problem(264 * 16 + 1, 512, dtype="f16")
    result = evaluate("norm_gate_backward", problem, backend="emulator")
    assert result.passed, result.text


def test_tensors_with_strides_are_copied() -> None:
    x, gate, weight, bias = (leaf.detach() for leaf in draw(20, 64))
    apart = torch.stack([x, gate], 1)
    strided = [*apart.unbind(1), torch.stack([weight, bias], 1)[:, 0], bias]
    assert not any(one.is_contiguous() for one in strided[:3])
    assert torch.equal(ladder.norm_gate(*strided), ladder.norm_gate(x, gate, weight, bias))


def test_tensors_at_odd_addresses_are_copied() -> None:
    leaves = draw(20, 64)
    values = torch.cat([torch.zeros(1), *(leaf.detach().float().flatten() for leaf in leaves)])
    *_, weight, bias = values[1:].split([leaf.numel() for leaf in leaves])
    x, gate = (F.pad(leaf.detach().flatten(), (1, 0))[1:].view(20, 64) for leaf in leaves[:2])
    odd = [one.requires_grad_() for one in (x, gate, weight.detach(), bias.detach())]
    assert all(one.data_ptr() % 16 for one in odd)
    for function in (torch.clone, lambda y: y[:, 1:], torch.Tensor.neg):
        found = [torch.autograd.grad(function(ladder.norm_gate(*one)).sum(), one) for one in (odd, leaves)]
        assert all(map(torch.equal, *found))


def test_the_gradient_may_be_torchs_zero_tensor() -> None:
    leaves = draw(5, 64)
    zeros = torch._efficientzerotensor((5, 64), dtype=torch.float16)
    assert not any(one.any() for one in torch.autograd.grad(ladder.norm_gate(*leaves), leaves, zeros))


def test_under_autocast() -> None:
    x, gate, weight, bias = draw(20, 64, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y = ladder.norm_gate(x.float(), gate.float(), weight, bias)
    assert y.dtype == torch.bfloat16 and torch.equal(y, ladder.norm_gate(x, gate, weight, bias))


def call(**changed: object) -> Tensor:
    tensors = dict(zip(("x", "gate", "weight", "bias"), draw(5, 64), strict=True))
    return ladder.norm_gate(**{**tensors, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": [1.0]}, "x is a list; it must be a torch.Tensor"),
        ({"x": torch.zeros(5, 2, 32).half()}, r"x has 3 dimensions; it must have 2: \(rows, columns\)"),
        ({"x": torch.zeros(0, 64).half(), "gate": torch.zeros(0, 64).half()}, "R .rows. is 0"),
        ({"gate": torch.zeros(4, 64).half()}, r"gate is \(4, 64\); of this x it must be \(5, 64\)"),
        ({"gate": torch.zeros(5, 64)}, r"gate is torch\.float32; it must be torch\.float16"),
        ({"weight": torch.zeros(65)}, r"weight is \(65,\); of this x it must be \(64,\)"),
        ({"bias": torch.zeros(64).half()}, r"bias is torch\.float16; it must be torch\.float32"),
        (
            {"weight": torch.zeros(64, device="meta")},
            "weight is on meta; it must be on the CPU or a CUDA GPU",
        ),
        ({"x": torch.zeros(5, 64).half().to_sparse()}, r"x is torch\.sparse_coo; it must be dense"),
    ],
)
def test_tensors_that_do_not_go_together(changed: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        call(**changed)


def test_what_no_kernel_takes() -> None:
    with pytest.raises(UnsupportedProblem, match=r"x is torch\.float32; it must be one of torch\.float16"):
        call(x=torch.zeros(5, 64))
    for cols in (96, 2112):
        with pytest.raises(UnsupportedProblem, match=f"x has {cols} columns; it must have a multiple of 64"):
            ladder.norm_gate(*draw(5, cols))


@pytest.mark.parametrize("name", ["norm_gate", "norm_gate_backward"])
def test_the_kernels_take_these_numbers_of_columns(name: str) -> None:
    problem = get_operation(name).problem
    for cols in (1, 32, 96, 2112):
        assert not norm_gate_takes_cols(cols)
        with pytest.raises(UnsupportedProblem, match=f"cols is {cols}; it must be a multiple of 64"):
            evaluate(name, problem(5, cols, dtype="f16"), backend="emulator")
    assert norm_gate_takes_cols(2048) and not norm_gate_takes_cols(0)


@pytest.mark.parametrize("function", [torch.square, torch.clone], ids=["d_y of y", "d_y constant"])
def test_gradients_are_computed_once(function: Callable[[Tensor], Tensor]) -> None:
    leaves = draw(5, 64)
    total = function(ladder.norm_gate(*leaves)).sum()
    [dx] = torch.autograd.grad(total, leaves[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        (total + dx.square().sum()).backward()


def test_gradients_are_computed_one_at_a_time() -> None:
    leaves = draw(5, 64)
    several = torch.ones(2, 5, 64).half()
    with pytest.raises(UnsupportedProblem, match="computes one gradient at a time"):
        torch.autograd.grad(ladder.norm_gate(*leaves), leaves, several, is_grads_batched=True)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_as_one_graph() -> None:
    def model(x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return ladder.norm_gate(x * 2, gate, weight, bias).float().square().sum()

    found = []
    for function in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        leaves = draw(20, 64)
        total = function(*leaves)
        found.append([total, *torch.autograd.grad(total, leaves)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other) and one.any()


def test_what_torch_asks_of_the_operators() -> None:
    tensors, asked = [leaf.detach() for leaf in draw(20, 64)], ("test_schema", "test_faketensor")
    torch.library.opcheck(gating.norm_gate_operator, (*tensors, ""), test_utils=asked)
    d_y = torch.ones(20, 64).half()
    torch.library.opcheck(gating.norm_gate_backward_operator, (d_y, *tensors, ""), test_utils=asked)
