"""From CUDA source to an extension or a program: compilers, targets, the cache of builds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.build.compiling import ingredients
    from ladder.build.extensions import PTXAS_REPORT, build, build_all, ptx_command
    from ladder.build.libraries import emulator_library
    from ladder.build.messages import shortened
    from ladder.build.programs import build_program
    from ladder.build.remarks import Remark
    from ladder.build.target import CudaTarget, DebugTarget, EmulatorTarget, Target
    from ladder.build.toolchain import gxx, gxx_flags, gxx_version, pinned_nvcc
    from ladder.build.toolkit import emulated_toolkit
    from ladder.build.torch_modules import torch_module

__getattr__ = door(__name__)
