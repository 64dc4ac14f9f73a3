"""What a process of ``ladder verify`` does, in one run.

It runs either the reference, on the CPU, or the candidate, on the emulated GPU. It only computes and writes
files into FOLDER: tensors as their bytes, and ``result.json``. What they mean is decided by
:mod:`ladder.call.torch.judging` in another process.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import inspect
import json
import math
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ladder.call.torch.activation import set_variables
from ladder.call.torch.launching import LaunchedCandidate, resolved
from ladder.call.torch.shrinking import integer_constants, shrunk

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
        # Sums of exponentials overflow; a reference in half precision may, too, and is then left out.
        "64 times as large": lambda one: one * 64,
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
    constants = _with_constants(module, job["constants"], job["shrink"])
    init = list(module.get_init_inputs()) if hasattr(module, "get_init_inputs") else []
    torch.manual_seed(MODEL_SEED)
    model = module.Model(*init) if hasattr(module, "Model") else _function_model(module.reference)
    names = inspect.signature(model.forward if hasattr(module, "Model") else module.reference).parameters
    cases: dict[str, list[Any]] = {f"seed {seed}": _drawn(module, seed) for seed in INPUT_SEEDS}
    cases |= variants(cases[f"seed {INPUT_SEEDS[0]}"])
    described = []
    for number, (name, inputs) in enumerate(cases.items()):
        given = [save(folder, f"in_{number}_{i}", one) for i, one in enumerate(inputs)]
        usual, again = (outputs_of(model(*copy.deepcopy(inputs))) for _ in range(2))
        exact = outputs_of(_doubled(model)(*[_doubled(one) for one in inputs]))
        case = {
            "name": name,
            "inputs": given,
            "usual": [save(folder, f"usual_{number}_{i}", one) for i, one in enumerate(usual)],
            "exact": [save(folder, f"exact_{number}_{i}", one) for i, one in enumerate(exact)],
            "is_the_same_again": all(
                torch.equal(one.nan_to_num(), two.nan_to_num()) for one, two in zip(usual, again, strict=True)
            ),
        }
        if job["launch"]:
            call = resolved(job["launch"], vars(module), dict(zip(names, inputs, strict=False)), usual)
            initial = [_initial(value, one) for value, one in zip(call["initial"], usual, strict=True)]
            call["initial"] = [save(folder, f"initial_{number}_{i}", one) for i, one in enumerate(initial)]
            case["call"] = call
        described.append(case)
    return {"init": init, "constants": constants, "cases": described}


def _with_constants(module: Any, wanted: Mapping[str, int], shrink: bool) -> dict[str, int]:
    """Sets constants of the module, then makes the others smaller; returns all that it has set."""
    for name, value in wanted.items():
        if not hasattr(module, name):
            raise AttributeError(f"it has no constant {name}")
        setattr(module, name, value)
    if not shrink:
        return dict(wanted)
    others = {name: value for name, value in integer_constants(module).items() if name not in wanted}
    return {**wanted, **shrunk(module, others)}


def _drawn(module: Any, seed: int) -> list[Any]:
    """The inputs of this seed; numpy's arrays become tensors."""
    import numpy
    import torch

    torch.manual_seed(seed)
    numpy.random.seed(seed)
    return [torch.from_numpy(one) if isinstance(one, numpy.ndarray) else one for one in module.get_inputs()]


def _function_model(function: Callable[..., Any]) -> Any:
    """A reference that is a function of numpy's arrays, as a module."""
    import numpy
    import torch

    class Reference(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            given = [one.numpy() if isinstance(one, torch.Tensor) else one for one in inputs]
            found = function(*given)
            found = found if isinstance(found, (tuple, list)) else [found]
            return [torch.from_numpy(numpy.array(one)) for one in found]

    return Reference()


def _initial(value: Any, output: Any) -> Any:
    """What an output holds before the call: a tensor, or the dtype and shape of one that is not written."""
    import torch

    if value is None:
        return {"dtype": str(output.dtype).removeprefix("torch."), "shape": list(output.shape)}
    if isinstance(value, torch.Tensor):
        return value.to(output.dtype).reshape(output.shape)
    return torch.full_like(output, value)


def _doubled(value: Any) -> Any:
    """A copy in float64 of what is floating-point."""
    import torch

    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).double()
    is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_real else copy.deepcopy(value)


def run_candidate(job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Runs the candidate on the job's cases, in this order, on the same input tensors."""
    import torch

    from ladder.run.emulator import last_fault, session

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

    candidate = _candidate(job, folder)
    device: list[Any] = []
    described = []
    names: set[str] = set()
    for number, case in enumerate(job["cases"]):
        device = _placed(device, [read(folder, one) for one in case["inputs"]])
        model = candidate(case)
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


def _candidate(job: Mapping[str, Any], folder: Path) -> Callable[[Mapping[str, Any]], Callable[..., Any]]:
    """What computes a case: the same module for all, or the function with the case's other arguments."""
    import torch

    if job["launch"]:
        launched = LaunchedCandidate.built(Path(job["file"]), Path(job["beside"]), job["launch"], folder)
        return lambda case: functools.partial(
            launched, case["call"], [read(folder, one) for one in case["call"]["initial"]]
        )
    module = load(job["file"])
    torch.manual_seed(MODEL_SEED)
    model = module.ModelNew(*job["init"]).cuda()
    return lambda case: model


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


def run(job: Mapping[str, Any], place: str, environment: Mapping[str, str]) -> None:
    """Does the job in a process of its own, which has torch with the emulated device. Leaves its files and
    ``result.json`` in the folder ``place``.
    """
    folder = Path(place)
    os.environ.update(environment)
    set_variables()
    tempfile.tempdir, sys.dont_write_bytecode = None, True
    try:
        result = (run_candidate if job["is_candidate"] else run_reference)(job, folder)
    except BaseException as error:
        lines = str(error).strip().splitlines()
        # A failed build prints its commands, too.
        shown = [line for line in lines if "error:" in line][:_LINES_SHOWN] or lines[-_LINES_SHOWN:]
        result = {"error": type(error).__name__, "message": "\n".join(shown)}
    (folder / RESULT).write_text(json.dumps(result), encoding="utf-8")
