"""A missing barrier, and a sum on top of memory that was never written: for the sanitizer."""

import torch
from built import kernels

kernels.racy()
print(kernels.accumulated(torch.ones(64, device="cuda")).cpu().shape)
