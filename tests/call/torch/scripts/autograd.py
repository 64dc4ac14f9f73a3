"""A custom autograd function whose backward launches a kernel, on autograd's own thread."""

import torch
from built import kernels


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return kernels.scale(x.contiguous(), factor)

    @staticmethod
    def backward(ctx, gradient):
        return kernels.scale(gradient.contiguous(), ctx.factor), None


x = torch.randn(64, device="cuda", requires_grad=True)
Scale.apply(x, 3.0).sum().backward()
assert torch.equal(x.grad, torch.full_like(x, 3.0))
print("right")
