"""PyTorch programs for CUDA, run unchanged on torch's CPU build: their kernels run on the emulator.

torch gets a device "cuda:0". torch's own operations on it run torch's CPU kernels, on memory of the emulated
GPU; the kernels of extensions that the program builds with ``torch.utils.cpp_extension`` are emulated,
counted and checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.call.torch.activation import activate
    from ladder.call.torch.command import DESCRIPTION, add_options, run
    from ladder.call.torch.judging import NOT_JUDGED, RIGHT, WRONG, Limits, Reason, Verdict, verify
    from ladder.call.torch.kernelbench import pairs
    from ladder.call.torch.launching import Launch, launch_of, read_launch
    from ladder.call.torch.scripts import run_script

__getattr__ = door(__name__)
