"""Functions of a PYBIND11_MODULE, for three dtypes."""

import torch
from built import kernels

for dtype in (torch.float32, torch.float16, torch.bfloat16):
    x = torch.randn(1000, device="cuda", dtype=dtype)
    assert torch.equal(kernels.scale(x, 2.0), x * 2)
assert kernels.multiprocessors() == torch.cuda.get_device_properties(0).multi_processor_count
try:
    kernels.scale(torch.ones(3), 2.0)
except RuntimeError as error:
    assert "x must be a CUDA tensor" in str(error)
    print("right")
