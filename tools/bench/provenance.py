"""The environment of a measurement: GPU, driver, compiler, torch, date."""

from __future__ import annotations

import datetime
import subprocess

import torch

from ladder.compile import toolchain


def measured_on() -> dict[str, str]:
    """The leading columns of every row measured on the current CUDA device."""
    nvcc = toolchain.system_nvcc() or toolchain.pinned_nvcc()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
    return {
        "gpu": properties.name,
        "arch": f"sm_{properties.major}{properties.minor}",
        "sm_count": str(properties.multi_processor_count),
        "driver": subprocess.run(query, capture_output=True, text=True).stdout.strip(),
        "compiler": f"nvcc {nvcc.version}",
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }
