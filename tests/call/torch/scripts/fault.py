"""A kernel that writes beyond the end of its tensor; what follows on the device fails, as on a GPU."""

import torch
from built import kernels

x = torch.zeros(100, device="cuda")
try:
    kernels.out_of_bounds(x, 128)
    torch.cuda.synchronize()
except RuntimeError as error:
    print("caught:", error)
