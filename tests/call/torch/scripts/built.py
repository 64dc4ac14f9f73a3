"""The extension of these scripts, which ``load`` builds once."""

from pathlib import Path

from torch.utils.cpp_extension import load

kernels = load(name="ladder_scripts_kernels", sources=[str(Path(__file__).with_name("kernels.cu"))])
