"""A stage's extension in the process that loads it: its ``launch``, called with addresses."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ladder.errors import ExecutionError, UnsupportedProblem

#: How the name of the function that a kernel.cu defines begins in a library.
_LAUNCH = "_ZN6ladder6launchE"


@functools.cache
def _load(extension: Path) -> ModuleType:
    # pybind11 keeps one module per full name, but derives the init function from the last component only.
    name = f"{extension.parent.name}.ladder_stage"
    loader = importlib.machinery.ExtensionFileLoader(name, str(extension))
    spec = importlib.util.spec_from_file_location(name, extension, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@functools.cache
def _module(extension: Path) -> Any:
    try:
        return _load(extension)
    except ImportError as error:
        if _LAUNCH in str(error):
            raise ExecutionError(
                "its kernel.cu defines no ladder::launch for this problem",
                "Another rung of the operation shows what it takes: void ladder::launch(const ...Problem &p, "
                "cudaStream_t stream).",
            ) from None
        raise ExecutionError(f"{extension} cannot be loaded: {error}") from error


def launch(extension: Path, addresses: Mapping[str, int], arguments: Mapping[str, Any], stream: int) -> None:
    """Calls the extension's ``launch`` once, with the addresses of inputs and outputs by name, 0 for an
    optional one that is missing, and the other fields of the problem's struct.

    Raises :class:`UnsupportedProblem` if the stage refuses the problem, :class:`ExecutionError` if CUDA
    fails.
    """
    function = _module(extension).launch
    try:
        function(**addresses, **arguments, stream=stream)
    except Exception as error:
        raise _ours(error) from error


def prepared(extension: Path, names: Sequence[str], arguments: Mapping[str, Any]) -> Callable[..., None]:
    """A function that calls the extension's ``launch`` with these arguments; it takes the stream, and the
    addresses of the tensors ``names``. It raises as :func:`launch` does, and takes less time.
    """
    function = _module(extension).Prepared([*names], **arguments)

    def call(stream: int, *addresses: int) -> None:
        try:
            function(stream, *addresses)
        except Exception as error:
            raise _ours(error) from error

    return call


def _ours(error: Exception) -> UnsupportedProblem | ExecutionError:
    """A binding's exception as one of ours."""
    return (UnsupportedProblem if isinstance(error, ValueError) else ExecutionError)(str(error))
