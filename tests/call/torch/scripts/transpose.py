"""A kernel with bank conflicts: 32 warps read a column of 32 rows each."""

import torch
from built import kernels

x = torch.randn(32, 32, device="cuda")
assert torch.equal(kernels.transpose(x), x.t())
print("right")
