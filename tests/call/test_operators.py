"""Attention as a torch operator: compiled into a graph, they give the same outputs as without."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from rungs import named
from torch import Tensor

import ladder
from ladder.call import operators
from ladder.errors import InvalidProblem, LadderError, UnsupportedProblem

pytestmark = pytest.mark.usefixtures("fresh_compiler")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def tensors(device: str = "cpu", dtype: torch.dtype = torch.float16, q_len: int = 16) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((1, 2, q_len, 32), (1, 2, 24, 32), (1, 2, 24, 32))
    return tuple(torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes)


def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    o, lse = ladder.attention(q * 2, k, v, is_causal=True, stage="v3")
    return o.float() + torch.exp(lse)[..., None]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_compiled_as_one_graph(device: str, compiler: str) -> None:
    inputs = tensors(device)
    compiled = torch.compile(model, backend=compiler, fullgraph=True)
    assert torch.equal(compiled(*inputs), model(*inputs))
    longer = tensors(device, q_len=33)
    assert torch.equal(compiled(*longer), model(*longer))  # of another length: recompiled or dynamic


def test_what_torch_asks_of_an_operator() -> None:
    torch.library.opcheck(
        operators.attention,
        (*tensors(), True, None, False, named("v2")),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )


def test_errors_come_through() -> None:
    q, k, v = tensors()
    with pytest.raises(UnsupportedProblem, match="f32"):
        torch.ops.ladder.attention(q, k, v, stage="v1")
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with pytest.raises(InvalidProblem, match="same shape"):
        compiled(q, k, v[:, :, :8].contiguous())


@pytest.mark.parametrize("operation", ["attention", "varlen", "hstu"])
def test_an_unknown_rung_of_the_gradients_is_an_error_of_the_forward_pass(operation: str) -> None:
    def model(x: Tensor) -> Tensor:
        if operation == "attention":
            o, _ = ladder.attention(x, x, x, backward="b0_nothing")
        elif operation == "varlen":
            o = ladder.varlen_attention(x, x, x, offsets, offsets, 16, 16, backward="b0_nothing")
        else:
            o = ladder.hstu_attention(x, x, x, offsets, backward="b0_nothing")
        return o

    offsets = torch.tensor([0, 16], dtype=torch.int32)
    x = tensors()[0] if operation == "attention" else tensors()[0][0].transpose(0, 1).contiguous()
    with pytest.raises(LadderError, match="b0_nothing"):
        torch.compile(model, backend="eager", fullgraph=True)(x.requires_grad_())


@needs_gpu
class TestOnTheGpu:
    """Operators with streams, devices and CUDA graphs."""

    @pytest.mark.parametrize(
        "stage", [stage.name for stage in ladder.discover().computing("attention") if not stage.is_variant]
    )
    def test_a_cuda_graph_captures_it(self, stage: str) -> None:
        dtype = torch.float16 if "f16" in ladder.discover()[stage].dtypes else torch.float32
        q, k, v = tensors("cuda", dtype)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            ladder.attention(q, k, v, stage=stage)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o, lse = ladder.attention(q, k, v, stage=stage)
        for seed in range(3):
            torch.manual_seed(seed)
            q.normal_()
            graph.replay()
            expected, expected_lse = ladder.attention(q, k, v, stage=stage)
            assert torch.equal(o, expected) and torch.equal(lse, expected_lse)

    def test_the_current_stream_is_used(self) -> None:
        q, k, v = tensors("cuda")
        expected, _ = ladder.attention(q, k, v, stage="v3")
        late = torch.zeros_like(q)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            late.copy_(q)
            o, _ = ladder.attention(late, k, v, stage="v3")
        stream.synchronize()
        assert torch.equal(o, expected)

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
    def test_the_tensors_device_is_used(self) -> None:
        q, k, v = (tensor.to("cuda:1") for tensor in tensors("cpu"))
        o, _ = ladder.attention(q, k, v, stage="v3")
        expected = F.scaled_dot_product_attention(q, k, v)
        assert o.device == q.device and torch.cuda.current_device() == 0
        assert (o - expected).abs().max() < 1e-2
