"""Seeds for kernels that draw random numbers: torch.manual_seed repeats them."""

import torch
from built import kernels

torch.manual_seed(5)
first, second = kernels.drawn_seed(), kernels.drawn_seed()
torch.manual_seed(5)
assert torch.equal(kernels.drawn_seed(), first) and not torch.equal(first, second)
print("right")
