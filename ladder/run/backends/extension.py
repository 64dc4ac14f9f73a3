"""A stage's extension in the process that loads it: its ``launch``, called with addresses.

It has a C interface, the one of stages/include/ladder/binding.cpp, so that it fits every version of Python.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ladder.errors import ExecutionError, UnsupportedProblem

#: How the name of the function that a kernel.cu defines begins in a library.
_LAUNCH = "_ZN6ladder6launchE"
_LAUNCHED, _UNSUPPORTED = 0, 1
#: The most bytes that a rung reads or writes at once; TMA's addresses are multiples of it, too.
_ALIGNMENT = 16
_TENSOR, _BOOLEAN, _INTEGER, _INTEGERS, _REAL, _TEXT = range(6)


class _NamedValue(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("text", ctypes.c_char_p),
        ("integers", ctypes.c_int64 * 3),
        ("real", ctypes.c_double),
        ("kind", ctypes.c_int32),
    )


@functools.cache
def _library(extension: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(extension))
        library.ladder_launch.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        library.ladder_reason.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        if _LAUNCH in str(error):
            raise ExecutionError(
                "its kernel.cu defines no ladder::launch for this problem",
                "Another rung of the operation shows what it takes: void ladder::launch(const ...Problem &p, "
                "cudaStream_t stream).",
            ) from None
        raise ExecutionError(f"{extension} cannot be loaded: {error}") from error
    return library


def launch(extension: Path, addresses: Mapping[str, int], arguments: Mapping[str, Any], stream: int) -> None:
    """Calls the extension's ``launch`` once, with the addresses of inputs and outputs by name, 0 for an
    optional one that is missing, and the other fields of the problem's struct.

    Raises :class:`UnsupportedProblem` if the stage refuses the problem, :class:`ExecutionError` if CUDA
    fails.
    """
    prepared(extension, [*addresses], arguments)(stream, [*addresses.values()])


def prepared(extension: Path, names: Sequence[str], arguments: Mapping[str, Any]) -> PreparedCall:
    """The extension's ``launch`` with these arguments and tensors of these ``names``."""
    return PreparedCall(_library(extension), names, arguments)


class PreparedCall:
    """Calls an extension's ``launch`` with its arguments; it takes the stream, and the tensors' addresses. It
    raises as :func:`launch` does.

    ``entry`` has the addresses of the C function and of its arguments, with their number, for callers in C++.
    They are valid for as long as this object.
    """

    __slots__ = ("_count", "_function", "_library", "_named", "_names", "_row", "entry")

    def __init__(self, library: ctypes.CDLL, names: Sequence[str], arguments: Mapping[str, Any]) -> None:
        tensors = [_value(name, _TENSOR, integers=(place,)) for place, name in enumerate(names)]
        values = [*tensors, *(_encoded(name, value) for name, value in arguments.items())]
        self._library, self._names = library, names
        self._function, self._count = library.ladder_launch, len(values)
        self._named = (_NamedValue * len(values))(*values)
        self._row = struct.Struct(f"{len(names)}Q").pack  # in a fifth of the time of an array of ctypes
        function = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        self.entry = function, ctypes.addressof(self._named), self._count

    def __call__(self, stream: int, addresses: Sequence[int]) -> None:
        status = self._function(self._named, self._count, self._row(*addresses), stream)
        if status != _LAUNCHED:
            self.refuse(status, addresses)

    def refuse(self, status: int, addresses: Sequence[int]) -> None:
        """Raises the error of a launch that returned this status, in the thread that launched."""
        reason = self._library.ladder_reason().decode(errors="replace")
        if status == _UNSUPPORTED:
            raise UnsupportedProblem(reason, _unaligned(self._names, addresses))
        raise ExecutionError(reason)


def _unaligned(names: Sequence[str], addresses: Sequence[int]) -> str:
    """A hint that names the tensors whose addresses some rungs refuse; empty if there are none."""
    odd = [name for name, address in zip(names, addresses, strict=True) if address % _ALIGNMENT]
    if not odd:
        return ""
    return f"Not at a multiple of {_ALIGNMENT} bytes: {', '.join(odd)}. A copy is: {odd[0]}.clone()."


def _encoded(name: str, value: Any) -> _NamedValue:
    """An argument that is no tensor. Raises :class:`UnsupportedProblem` for one that no struct has."""
    if isinstance(value, bool):
        return _value(name, _BOOLEAN, integers=(value,))
    if isinstance(value, int) and _fits(value):
        return _value(name, _INTEGER, integers=(value,))
    if isinstance(value, float):
        return _value(name, _REAL, real=value)
    if isinstance(value, str):
        return _value(name, _TEXT, text=value.encode())
    if isinstance(value, tuple | list) and len(value) == 3 and all(map(_fits, value)):
        return _value(name, _INTEGERS, integers=value)
    raise UnsupportedProblem(f"{name} has a value that it cannot have: {value!r}")


def _fits(value: Any) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _value(
    name: str, kind: int, *, integers: Sequence[int] = (), real: float = 0.0, text: bytes = b""
) -> _NamedValue:
    return _NamedValue(name.encode(), text, (ctypes.c_int64 * 3)(*integers), real, kind)
