"""An extension whose host code dereferences a null pointer, after one launch."""

import torch
from built import kernels

kernels.scale(torch.ones(10, device="cuda"), 2.0)
kernels.crash()
