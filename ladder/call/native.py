"""Calls of attention in C++, which take less host time than in Python, with the gradient as a function of
autograd.

``autograd.cpp`` is compiled in the background from the first call on a GPU on, and waited for when a gradient
is first wanted. Until then, and without a C++ compiler or without the headers of Python or torch, calls are
looked up in Python, and gradients are the operator's: the same, with more host time.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ladder.call.runs import Run, all_in_memory
from ladder.compile import torch_module
from ladder.errors import LadderError
from ladder.run.backends import CudaLaunch

_SOURCE = Path(__file__).with_name("autograd.cpp")
#: Where it pays: a GPU waits for the host, the emulator does not.
_DEVICES = {"cuda"}

#: The run of the gradients, from its inputs.
Prepare = Callable[..., Run]
#: Computes the gradients for a caller that may differentiate them again, or asks for several at once. Its
#: arguments are d_o, d_lse or None, and the saved tensors: the forward run's inputs, o and lse.
Otherwise = Callable[[Tensor, Tensor | None, tuple[Any, ...]], tuple[Tensor | None, ...]]


#: Calls that C++ knows, once it is there. ``calls.call(query, key, value, sinks, choices, differentiable)``
#: is o and lse, or None.
calls: Any = None
#: Each is some hundred bytes.
_MOST_CALLS = 4096


def keep(run: Run, plan: Tensor | None, *call: Any) -> None:
    """Lets :data:`calls` know the run of a call, with its plan if it is differentiable."""
    if run.device.type not in _DEVICES:
        return
    if calls is None:
        _prepare_calls()
    else:
        calls.keep(_in_cpp(run), plan, *call)


def forget() -> None:
    """Forgets all calls."""
    if calls is not None:
        calls.clear()


@functools.cache
def _prepare_calls() -> None:
    """Builds the module in the background: a caller without gradients need not wait for it."""
    threading.Thread(target=module, name="ladder: calls in C++", daemon=True).start()


def plan_of(run: Run, prepare: Prepare, otherwise: Otherwise) -> Tensor | None:
    """A plan for :func:`apply`; None where the operator is to be used.

    The plan keeps both functions, so they must not refer to it.
    """
    if run.device.type not in _DEVICES or (made := module()) is None:
        return None
    plan: Tensor = made.plan(_in_cpp(run), lambda *inputs: _in_cpp(prepare(*inputs)), otherwise)
    return plan


def apply(plan: Tensor, *inputs: Tensor | None) -> tuple[Tensor, Tensor]:
    """o and lse, from a forward run's inputs."""
    outputs: tuple[Tensor, Tensor] = module().apply(plan, *inputs)
    return outputs


def module() -> Any:
    """The module made of ``autograd.cpp``; None if it cannot be built here."""
    with _making:
        return _module()


_making = threading.Lock()


@functools.cache
def _module() -> Any:
    global calls
    try:
        loader = ExtensionFileLoader(_SOURCE.stem, str(torch_module(_SOURCE)))
        spec = spec_from_loader(loader.name, loader)
        assert spec is not None
        made = module_from_spec(spec)
        loader.exec_module(made)
    except (LadderError, ImportError):
        return None
    calls = made.Calls(_MOST_CALLS)
    return made


def _in_cpp(run: Run) -> Any:
    """The run in C++, which is made once."""
    if run.in_cpp is None:
        # A torch.dtype has no other way to C++ that all versions of torch have.
        examples = [torch.empty(0, dtype=dtype, device=run.device) for _, _, dtype in run.kinds]
        shapes = [shape for shape, _, _ in run.kinds]
        launch = run.launch
        how: tuple[Any, ...] = (0, 0, 0, 0, launch, None)
        if isinstance(launch, CudaLaunch):
            how = (*launch.call.entry, _stream_of(), launch, launch.call.refuse)
        run.in_cpp = module().run(
            run.name, shapes, examples, run.places, *how, functools.partial(all_in_memory, run.inputs)
        )
    return run.in_cpp


@functools.cache
def _stream_of() -> int:
    """The address of torch's C function that returns a GPU's current stream."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
    return ctypes.cast(library.aoti_torch_get_current_cuda_stream, ctypes.c_void_p).value or 0
