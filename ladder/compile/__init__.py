"""From CUDA source to an extension or a program: compilers, targets, the cache of builds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.compile.compiling import ingredients
    from ladder.compile.confining import confined, run_compiler, system_folders
    from ladder.compile.extensions import PTXAS_REPORT, build, build_all, ptx_command
    from ladder.compile.libraries import emulator_library
    from ladder.compile.messages import shortened
    from ladder.compile.programs import build_program
    from ladder.compile.remarks import Remark
    from ladder.compile.target import CudaTarget, DebugTarget, EmulatorTarget, Target, TimingTarget
    from ladder.compile.toolchain import gxx, gxx_flags, gxx_version, pinned_nvcc
    from ladder.compile.toolkit import emulated_toolkit
    from ladder.compile.torch_modules import torch_module

__getattr__ = door(__name__)
