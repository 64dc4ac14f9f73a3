"""Streams and events, as programs measure with them."""

import torch
from built import kernels

x = torch.ones(256, device="cuda")
side, begin, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
with torch.cuda.stream(side):
    assert torch.cuda.current_stream().cuda_stream == side.cuda_stream != 0
    y = kernels.scale(x, 2.0)
torch.cuda.current_stream().wait_stream(side)
end.record()
torch.cuda.synchronize()
assert begin.elapsed_time(end) > 0 and torch.cuda.current_stream().cuda_stream == 0
assert y.sum().item() == 512
assert kernels.accumulated_beside(x).sum().item() == 512
print("right")
