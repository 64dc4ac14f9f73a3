"""``with ladder.counting():`` runs the block's kernels of Triton and Numba on the emulator."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec

from ladder.errors import ToolchainError
from ladder.run.foreign.launched import Counted
from ladder.stages import DEFAULT_ARCH, require_arch


@contextmanager
def counting(arch: str = DEFAULT_ARCH, *, check: bool = False) -> Iterator[Counted]:
    """Runs the ``@triton.jit`` and ``@numba.cuda.jit`` kernels of the block on the virtual GPU ``arch``.

    Kernels take CPU tensors and NumPy arrays, which they read and write in place. They are compiled to PTX as
    for a GPU. ``check`` runs them under the sanitizer; a fault is then a finding, and otherwise raises
    :class:`ladder.run.emulator.FaultError`.

    Raises :class:`ToolchainError` if neither Triton nor Numba is installed.

    >>> import numba.cuda
    >>> @numba.cuda.jit
    ... def double(x):
    ...     x[numba.cuda.threadIdx.x] *= 2
    >>> x = torch.ones(32)
    >>> with ladder.counting() as counted:
    ...     double[1, 32](x.numpy())
    >>> x.sum().item()
    64.0
    """
    require_arch(arch)
    counted = Counted(arch, check)
    with ExitStack() as languages:
        found = False
        if "triton" in sys.modules or find_spec("triton"):
            from ladder.run.foreign import triton_kernels

            languages.enter_context(triton_kernels.emulated(counted))
            found = True
        if "numba" in sys.modules or find_spec("numba"):
            from ladder.run.foreign import numba_kernels

            languages.enter_context(numba_kernels.emulated(counted))
            found = True
        if not found:
            raise ToolchainError(
                "neither Triton nor Numba is installed",
                "pip install flash-ladder[triton] or flash-ladder[numba]",
            )
        yield counted
