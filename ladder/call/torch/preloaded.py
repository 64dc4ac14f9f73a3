"""What the processes of ``ladder verify`` share, imported once: torch with the emulated device."""

from ladder.call.torch import judged  # noqa: F401
from ladder.call.torch.activation import activate

activate()

import torch.utils.cpp_extension  # noqa: E402, F401
