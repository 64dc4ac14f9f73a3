"""The shape of a KernelBench problem: Model, ModelNew, get_inputs, and their comparison."""

import torch
from built import kernels


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return kernels.row_sum(x)


def get_inputs():
    return [torch.randn(16, 257)]


with torch.no_grad():
    for _ in range(3):
        inputs = [x.cuda() for x in get_inputs()]
        expected, found = Model().cuda()(*inputs), ModelNew().cuda()(*inputs)
        torch.cuda.synchronize()
        assert torch.allclose(expected, found, atol=1e-4, rtol=1e-4)
print("right")
