"""Operators of a TORCH_LIBRARY, with a kernel for CUDA alone."""

import built
import torch

del built
x = torch.randn(5, 300).to("cuda")
y = torch.ops.ladder_scripts.row_sum(x)
torch.testing.assert_close(y, x.sum(1))
try:
    torch.ops.ladder_scripts.row_sum(x.cpu())
except NotImplementedError as error:
    assert "CPU" in str(error)
    print("right")
