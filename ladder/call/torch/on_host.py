"""What torch computes on GPUs with kernels of its own, in Python: done on the CPU, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Recurrent layers and cells, for which torch's CUDA build has fused kernels.
_RECURRENT = ("lstm", "gru", "lstm_cell", "gru_cell")


def install() -> None:
    torch.backends.cudnn.is_acceptable = lambda tensor: False  # without a warning that cuDNN is missing
    for name in _RECURRENT:
        setattr(torch._VF, name, _on_host(getattr(torch._VF, name)))


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with tensors of the device copied to the CPU and its results copied back."""

    def call(*arguments: Any) -> Any:
        if not any(tensor.is_cuda for tensor in _tensors(arguments)):
            return function(*arguments)
        if any(tensor.is_cpu and tensor.is_floating_point() for tensor in _tensors(arguments)):
            raise RuntimeError(
                "Expected all tensors to be on the same device, "
                "but found at least two devices, cuda:0 and cpu!"
            )
        return _moved(function(*_moved(arguments, "cpu")), "cuda")

    return call


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for part in value for one in _tensors(part)] if isinstance(value, (tuple, list)) else []


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return type(value)(_moved(part, device) for part in value) if isinstance(value, (tuple, list)) else value
