"""Numba's CUDA kernels on the emulator, with NumPy arrays and CPU tensors as arguments."""

from __future__ import annotations

import inspect
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numba
import numpy as np
from numba import cuda, types
from numba.cuda.dispatcher import CUDADispatcher

from ladder.errors import UnsupportedProblem
from ladder.run.emulator import InOut, Module
from ladder.run.foreign.launched import Counted
from ladder.run.foreign.numba_device import compute_capability, emulated_device


@contextmanager
def emulated(counted: Counted) -> Iterator[None]:
    """Launches of Numba's kernels run on the emulator and are kept in ``counted``."""
    compiled: dict[tuple[Any, ...], tuple[Module, str, tuple[Any, ...]]] = {}

    def launch(
        dispatcher: Any, args: Sequence[Any], grid: Any, block: Any, stream: object, smem_bytes: int
    ) -> None:
        names = list(inspect.signature(dispatcher.py_func).parameters)
        values = [_plain(name, value) for name, value in zip(names, args, strict=False)]
        signature = tuple(numba.typeof(value) for value in values)
        key = (dispatcher, signature)
        if key not in compiled:
            compiled[key] = _compile(dispatcher, signature, counted.arch)
        module, kernel, signature = compiled[key]
        arguments = [
            part for kind, value in zip(signature, values, strict=True) for part in _parts(kind, value)
        ]
        counted.launch(module, kernel, grid, block, arguments, smem_bytes)

    with emulated_device(counted.arch), mock.patch.object(CUDADispatcher, "call", launch):
        yield


def _compile(dispatcher: Any, signature: tuple[Any, ...], arch: str) -> tuple[Module, str, tuple[Any, ...]]:
    options = dispatcher.targetoptions
    ptx, result = cuda.compile_ptx(
        dispatcher.py_func,
        signature,
        debug=bool(options.get("debug")),
        lineinfo=not options.get("debug"),
        fastmath=bool(options.get("fastmath")),
        cc=compute_capability(arch),
    )
    if result != types.void:
        raise UnsupportedProblem(
            f"{dispatcher.py_func.__name__} returns {result}", "A kernel returns nothing."
        )
    module = Module(_with_its_name(ptx, dispatcher.py_func.__name__), arch)
    (kernel,) = module.kernels
    return module, kernel, signature


def _with_its_name(ptx: str, name: str) -> str:
    """The PTX, with the function's name in place of Numba's, which has its types and options mangled in."""
    (entry,) = re.findall(r"\.entry\s+([\w$]+)", ptx)
    own = re.sub(r"[^0-9A-Za-z_]", "", name)
    return re.sub(rf"\b{re.escape(entry)}", own, ptx)


def _plain(name: str, value: Any) -> Any:
    """The argument as Numba types it: arrays of NumPy for its own subclasses and for tensors."""
    if hasattr(value, "data_ptr"):
        try:
            value = value.detach().numpy()
        except TypeError as error:
            raise UnsupportedProblem(
                f"{name}: {error}", "Numba takes tensors that NumPy has, too."
            ) from error
    if isinstance(value, np.ndarray) and any(stride < 0 for stride in value.strides):
        raise UnsupportedProblem(f"{name} has a negative stride", f"Pass {name}.copy().")
    return np.asarray(value) if isinstance(value, np.ndarray) else value


def _parts(kind: Any, value: Any) -> Iterator[object]:
    """The parameters of a kernel that one argument of this type becomes."""
    if isinstance(kind, types.Array):
        # meminfo, parent, number of elements, bytes of one, data, shape, strides
        yield from (bytes(8), bytes(8), value.size, value.itemsize)
        yield InOut(value) if value.size else bytes(8)
        yield from value.shape
        yield from value.strides
    elif isinstance(kind, types.Boolean):
        yield struct.pack("<b", int(value))
    elif isinstance(kind, types.Integer | types.Float):
        yield np.asarray(value, dtype=str(kind)).tobytes()
    elif isinstance(kind, types.Complex):
        number = np.asarray(value, dtype=str(kind))
        yield from (number.real.tobytes(), number.imag.tobytes())
    elif isinstance(kind, types.BaseTuple):
        for inner, one in zip(kind, value, strict=True):
            yield from _parts(inner, one)
    else:
        raise UnsupportedProblem(
            f"an argument of a Numba kernel has the type {kind}",
            "Arrays, numbers and tuples of these are emulated.",
        )
