"""A ``.cu`` as a candidate of ``ladder verify``: the file that describes its launch, and the call itself.

The description is TOML. docs/verify.md has an example of each kind. Values are Python expressions over the
reference's inputs, by the names of its parameters, and over the constants of its module.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ladder.call.torch.device_library import HEADERS, cuda_home
from ladder.errors import InvalidProblem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The most dimensions of a grid or a block.
_DIMENSIONS = 3
_LIBRARY = "launch.so"
_SOURCE = """\
#include {candidate}
#include <ladder/launch.h>
extern "C" int ladder_launch_call(const ladder_launch::Value *values, const unsigned *sizes, size_t shared) {{
  const dim3 grid(sizes[0], sizes[1], sizes[2]), block(sizes[3], sizes[4], sizes[5]);
  const int refused = ladder_launch::{kind}<{count}>(&{name}, values, grid, block, shared);
  return refused ? refused : cudaDeviceSynchronize();
}}
extern "C" const char *ladder_launch_name(int error) {{ return cudaGetErrorName(cudaError_t(error)); }}
"""


@dataclass(frozen=True)
class Launch:
    """How a candidate is launched: a host ``function``, or a ``kernel`` with its ``grid`` and ``block``.

    ``arguments`` are in the order of the parameters: names of the reference's inputs, ``out`` (of several
    outputs ``out0``, ``out1``, ...), or expressions. ``initial`` has what outputs hold before the call, an
    expression each; without one they are not written. ``flags`` are for nvcc.
    """

    arguments: Sequence[str]
    function: str = ""
    kernel: str = ""
    grid: Sequence[str] = ()
    block: Sequence[str] = ()
    shared_bytes: str = "0"
    initial: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[str] = ()


def read_launch(path: Path) -> Launch:
    """Reads the description. Raises :class:`InvalidProblem` for one that is incomplete or has other keys."""
    try:
        return launch_of(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidProblem(f"{path} is not TOML: {error}") from error
    except InvalidProblem as error:
        raise InvalidProblem(f"{path}: {error.message}", error.hint) from error


def launch_of(table: Mapping[str, Any]) -> Launch:
    """The launch that a table describes. Numbers may stand for expressions.

    Raises :class:`InvalidProblem` for unknown keys, and unless it names one function, or one kernel with its
    grid and block.
    """
    known = Launch.__dataclass_fields__
    if unknown := [key for key in table if key not in known]:
        raise InvalidProblem(f"{unknown[0]} is no key of a launch", f"The keys are {', '.join(known)}.")
    initial = table.get("initial", {})
    if not isinstance(initial, dict):
        raise InvalidProblem("initial is no table", 'For example: initial = { out = "0" }')
    found = Launch(
        arguments=_texts(table, "arguments"),
        function=str(table.get("function", "")),
        kernel=str(table.get("kernel", "")),
        grid=_texts(table, "grid"),
        block=_texts(table, "block"),
        shared_bytes=str(table.get("shared_bytes", "0")),
        initial={name: str(value) for name, value in initial.items()},
        flags=_texts(table, "flags"),
    )
    if bool(found.function) == bool(found.kernel):
        raise InvalidProblem("a launch names either a function or a kernel")
    if found.kernel and not (1 <= len(found.grid) <= _DIMENSIONS and 1 <= len(found.block) <= _DIMENSIONS):
        raise InvalidProblem("a kernel needs a grid and a block", "For example: grid = [12], block = [32, 4]")
    return found


def _texts(table: Mapping[str, Any], key: str) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise InvalidProblem(f"{key} is no list", 'For example: arguments = ["x", "out", "rows"]')
    return [str(one) for one in value]


def resolved(
    launch: Mapping[str, Any],
    constants: Mapping[str, Any],
    inputs: Mapping[str, Any],
    outputs: Sequence[Any],
) -> dict[str, Any]:
    """The launch with its values for these inputs: JSON, except the initial outputs, which are tensors.

    Raises :class:`InvalidProblem` for an expression that has no value.
    """
    names = {**constants, **inputs, "ceil_div": lambda a, b: -(-a // b)}
    places = {name: {"input": number} for number, name in enumerate(inputs)}
    results = ["out"] if len(outputs) == 1 else [f"out{i}" for i in range(len(outputs))]
    places |= {name: {"output": number} for number, name in enumerate(results)}

    def argument(text: str) -> dict[str, Any]:
        is_tensor = text in places and not isinstance(inputs.get(text), (int, float))
        return places[text] if is_tensor else {"value": _plain(_value(text, names))}

    def sizes(texts: Sequence[str]) -> list[int]:
        return [*(int(_value(text, names)) for text in texts), 1, 1, 1][:_DIMENSIONS]

    initial = [_value(launch["initial"].get(name, "None"), names) for name in results]
    return {
        "arguments": [argument(text) for text in launch["arguments"]],
        "sizes": [*sizes(launch["grid"]), *sizes(launch["block"])],
        "shared_bytes": int(_value(launch["shared_bytes"], names)),
        "initial": initial,
    }


def _value(text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression of whoever asks for the verdict, in the reference's confined process."""
    try:
        return eval(text, dict(names))
    except Exception as error:
        raise InvalidProblem(f"{text!r} has no value in the launch: {error}") from error


def _plain(value: Any) -> int | float:
    if not isinstance(value, (int, float)):
        raise InvalidProblem(f"an argument of the launch is {value!r}, neither a number nor a tensor's name")
    return value


class _Value(ctypes.Structure):
    """``ladder_launch::Value``."""

    _fields_ = (("pointer", ctypes.c_void_p), ("integer", ctypes.c_longlong), ("real", ctypes.c_double))


class LaunchedCandidate:
    """A candidate that is called like a ``ModelNew``: device tensors in, new device tensors out."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.ladder_launch_call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        library.ladder_launch_name.restype = ctypes.c_char_p

    @classmethod
    def built(
        cls, candidate: Path, beside: Path, launch: Mapping[str, Any], folder: Path
    ) -> LaunchedCandidate:
        """Builds the candidate in ``folder`` unless an earlier run has; its headers are ``beside`` the
        original. Raises RuntimeError with the compiler's message.
        """
        library = folder / _LIBRARY
        if not library.exists():
            kind = "kernel" if launch["kernel"] else "function"
            text = _SOURCE.format(
                candidate=f'"{candidate}"',
                kind=kind,
                name=launch[kind],
                count=len(launch["arguments"]),
            )
            source = folder / "launch.cu"
            source.write_text(text, encoding="utf-8")
            flags = ["-shared", "-Xcompiler", "-fPIC", "-std=c++17", "-I", str(HEADERS)]
            flags += ["-I", str(beside), *launch["flags"]]
            command = [str(cuda_home() / "bin" / "nvcc"), *flags, "-o", _LIBRARY, str(source)]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"it does not compile:\n{done.stderr or done.stdout}")
        return cls(_loaded(library))

    def __call__(self, call: Mapping[str, Any], initial: Sequence[Any], *inputs: Any) -> list[Any]:
        """Calls it as :func:`resolved` says. Returns new outputs, which begin as copies of ``initial``; one
        of these that is no tensor has the dtype and shape of an output that is not written before.
        """
        outputs = [_output(one) for one in initial]
        values = (_Value * len(call["arguments"]))(
            *(_argument(one, inputs, outputs) for one in call["arguments"])
        )
        sizes = (ctypes.c_uint * len(call["sizes"]))(*call["sizes"])
        error = self._library.ladder_launch_call(values, sizes, call["shared_bytes"])
        if error:
            raise RuntimeError(self._library.ladder_launch_name(error).decode())
        return outputs


def _loaded(library: Path) -> ctypes.CDLL:
    """The library, whose ``main`` may call functions of other files that are not there."""
    system = ctypes.CDLL(None)
    system.dlopen.restype = ctypes.c_void_p
    system.dlerror.restype = ctypes.c_char_p
    handle = system.dlopen(os.fsencode(library), os.RTLD_LAZY)
    if not handle:
        raise RuntimeError(system.dlerror().decode())
    return ctypes.CDLL(str(library), handle=handle)


def _output(initial: Any) -> Any:
    import torch

    if isinstance(initial, torch.Tensor):
        return initial.cuda()
    return torch.empty(initial["shape"], dtype=getattr(torch, initial["dtype"]), device="cuda")


def _argument(described: Mapping[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> _Value:
    if "value" in described:
        number = described["value"]
        return _Value(None, int(number) if math.isfinite(number) else 0, float(number))
    tensor = inputs[described["input"]] if "input" in described else outputs[described["output"]]
    return _Value(tensor.data_ptr(), 0, 0.0)
