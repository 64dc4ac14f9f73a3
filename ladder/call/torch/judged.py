"""The process of one run of ``ladder verify``: ``python -m ladder.call.torch.judged JOB.json FOLDER``.

It runs either the reference, on the CPU, or the candidate, on the emulated GPU. It only computes and writes
files into FOLDER: tensors as their bytes, and ``result.json``. What they mean is decided by
:mod:`ladder.call.torch.judging` in another process.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: The seed of a model's parameters, the same for the reference and the candidate, as in KernelBench.
MODEL_SEED = 42
#: The seeds of the inputs as the reference draws them.
INPUT_SEEDS = (0, 1)
RESULT, FINDINGS = "result.json", "findings.json"
_MOST_BYTES = 64 * 2**20
_LINES_SHOWN = 8


def load(file: str) -> Any:
    """Imports a file as a module."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def save(folder: Path, name: str, value: Any) -> dict[str, Any]:
    """Writes a tensor's bytes and returns its description; a plain value is its own description."""
    import torch

    if not isinstance(value, torch.Tensor):
        return {"value": value}
    data = value.detach().cpu().contiguous()
    (folder / name).write_bytes(data.reshape(-1).view(torch.uint8).numpy().tobytes())
    return {"file": name, "dtype": str(data.dtype).removeprefix("torch."), "shape": list(data.shape)}


def contents(folder: Path, name: str) -> bytes:
    """The bytes of a file that a process which is not trusted has left in its folder. Raises ValueError for
    anything but an ordinary file of a limited size, such as a link to elsewhere or a pipe.
    """
    if Path(name).name != name:
        raise ValueError(f"{name!r} is not a file's name")
    descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST_BYTES:
            raise ValueError(f"{name} is no ordinary file, or too large")
        return file.read(state.st_size)


def read(folder: Path, described: Mapping[str, Any]) -> Any:
    """What :func:`save` has described. Raises ValueError unless the file has as many bytes as the shape."""
    import torch

    if "file" not in described:
        return described["value"]
    shape, dtype = described["shape"], getattr(torch, described["dtype"])
    empty = torch.empty(0, dtype=dtype)
    data = bytearray(contents(folder, described["file"]))
    if len(data) != empty.element_size() * math.prod(shape):
        raise ValueError(f"{described['file']} has {len(data)} bytes, not those of its shape")
    return torch.frombuffer(data, dtype=dtype).reshape(shape) if data else empty.reshape(shape)


def outputs_of(returned: Any) -> list[Any]:
    """The tensors that a model's forward returns. Raises TypeError for anything else."""
    import torch

    found = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if not found or not all(isinstance(one, torch.Tensor) for one in found):
        raise TypeError(f"forward returns {type(returned).__name__}, not a tensor or a tuple of tensors")
    return found


def variants(inputs: Sequence[Any]) -> dict[str, list[Any]]:
    """Further inputs of the same shapes: floating-point tensors are changed, everything else stays."""
    import torch

    changes: dict[str, Callable[[Any], Any]] = {
        "16 times as large": lambda one: one * 16,
        "all negative": lambda one: -one.abs(),
        "all equal": lambda one: torch.full_like(one, 0.5),
    }

    def changed(change: Callable[[Any], Any]) -> list[Any]:
        is_real = [isinstance(one, torch.Tensor) and one.is_floating_point() for one in inputs]
        return [change(one) if real else one for one, real in zip(inputs, is_real, strict=True)]

    return {name: changed(change) for name, change in changes.items()}


def run_reference(job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Draws the inputs and computes the outputs as the reference does, and in float64."""
    import torch

    torch.set_grad_enabled(False)
    module = load(job["file"])
    for name, value in job["constants"].items():
        if not hasattr(module, name):
            raise AttributeError(f"it has no constant {name}")
        setattr(module, name, value)
    init = list(module.get_init_inputs()) if hasattr(module, "get_init_inputs") else []
    torch.manual_seed(MODEL_SEED)
    model = module.Model(*init)
    cases: dict[str, list[Any]] = {}
    for seed in INPUT_SEEDS:
        torch.manual_seed(seed)
        cases[f"seed {seed}"] = list(module.get_inputs())
    cases |= variants(cases[f"seed {INPUT_SEEDS[0]}"])
    described = []
    for number, (name, inputs) in enumerate(cases.items()):
        given = [save(folder, f"in_{number}_{i}", one) for i, one in enumerate(inputs)]
        usual, again = (outputs_of(model(*copy.deepcopy(inputs))) for _ in range(2))
        exact = outputs_of(_doubled(model)(*[_doubled(one) for one in inputs]))
        described.append(
            {
                "name": name,
                "inputs": given,
                "usual": [save(folder, f"usual_{number}_{i}", one) for i, one in enumerate(usual)],
                "exact": [save(folder, f"exact_{number}_{i}", one) for i, one in enumerate(exact)],
                "is_the_same_again": all(
                    torch.equal(one.nan_to_num(), two.nan_to_num())
                    for one, two in zip(usual, again, strict=True)
                ),
            }
        )
    return {"init": init, "cases": described}


def _doubled(value: Any) -> Any:
    """A copy in float64 of what is floating-point."""
    import torch

    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).double()
    is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_real else copy.deepcopy(value)


def run_candidate(job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Runs the candidate on the job's cases, in this order, on the same input tensors."""
    from ladder.call.torch.activation import activate
    from ladder.run.emulator import last_fault, session

    activate()
    import torch

    torch.set_grad_enabled(False)
    with session(job["arch"], **job["options"]) as run:
        try:
            found = _run_cases(job, folder)
        except BaseException:
            if fault := last_fault():
                return {"error": "fault", "message": fault.text}
            raise
        fault, kernels = last_fault(), {launch.kernel for launch in run.launches}
    (folder / FINDINGS).write_text(run.findings_json, encoding="utf-8")
    return {**found, "kernels": sorted(kernels), "fault": fault.text if fault else None}


def _run_cases(job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Saves the outputs of each call, and the inputs after the last one; names torch's operations."""
    import torch

    module = load(job["file"])
    torch.manual_seed(MODEL_SEED)
    model = module.ModelNew(*job["init"]).cuda()
    device: list[Any] = []
    described = []
    names: set[str] = set()
    for number, case in enumerate(job["cases"]):
        device = _placed(device, [read(folder, one) for one in case["inputs"]])
        calls = []
        for call in range(job["calls"]):
            with _recorder() as operations:
                outputs = outputs_of(model(*device))
            torch.cuda.synchronize()
            names |= operations.names
            calls.append([save(folder, f"out_{number}_{call}_{i}", one) for i, one in enumerate(outputs)])
        after = [save(folder, f"after_{number}_{i}", one) for i, one in enumerate(device)]
        described.append({"calls": calls, "after": after})
    return {"cases": described, "operations": sorted(names)}


def _placed(device: list[Any], inputs: Sequence[Any]) -> list[Any]:
    """The inputs on the device, in the tensors of the case before: what is kept by address shows."""
    import torch

    if not device:
        return [one.cuda() if isinstance(one, torch.Tensor) else one for one in inputs]
    for place, one in zip(device, inputs, strict=True):
        if isinstance(one, torch.Tensor):
            place.copy_(one)
    return device


def _recorder() -> Any:
    """A context in which torch's operations leave their names in ``names``."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):
        names: set[str]

        def __init__(self) -> None:
            super().__init__()
            self.names = set()

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.add(str(function).rsplit(".", 1)[0].removeprefix("aten."))
            return function(*args, **(kwargs or {}))

    return Operations()


def main() -> None:
    folder = Path(sys.argv[2])
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        result = (run_candidate if job["is_candidate"] else run_reference)(job, folder)
    except BaseException as error:
        lines = str(error).strip().splitlines()
        # A failed build prints its commands, too.
        shown = [line for line in lines if "error:" in line][:_LINES_SHOWN] or lines[-_LINES_SHOWN:]
        result = {"error": type(error).__name__, "message": "\n".join(shown)}
    (folder / RESULT).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
