"""A launch with too many threads is an error of that launch alone."""

import torch
from built import kernels

x = torch.zeros(100, device="cuda")
try:
    kernels.out_of_bounds(x, 2048)
except RuntimeError as error:
    assert "CUDA error" in str(error)
assert (x + 1).sum().item() == 100
print("right")
