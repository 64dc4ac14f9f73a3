"""A stage's extension in the process that loads it: its ``launch``, called with addresses."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
from collections.abc import Callable, Mapping
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
def launch_function(extension: Path) -> Callable[..., None]:
    """The extension's ``launch``. Raises :class:`ExecutionError` if it cannot be loaded."""
    try:
        function: Callable[..., None] = _load(extension).launch
    except (ImportError, AttributeError) as error:
        if _LAUNCH in str(error):
            raise ExecutionError(
                "its kernel.cu defines no ladder::launch for this problem",
                "Another rung of the operation shows what it takes: void ladder::launch(const ...Problem &p, "
                "cudaStream_t stream).",
            ) from None
        raise ExecutionError(f"{extension} cannot be loaded: {error}") from error
    return function


def call_function(
    function: Callable[..., None], addresses: Mapping[str, int], arguments: Mapping[str, Any], stream: int
) -> None:
    """Calls a :func:`launch_function` once, with the addresses of inputs and outputs by name, 0 for an
    optional one that is missing, and the other fields of the problem's struct.

    Raises :class:`UnsupportedProblem` if the stage refuses the problem, :class:`ExecutionError` if CUDA
    fails.
    """
    try:
        function(**addresses, **arguments, stream=stream)
    except ValueError as error:
        raise UnsupportedProblem(str(error)) from error
    except Exception as error:
        raise ExecutionError(str(error)) from error


def launch(extension: Path, addresses: Mapping[str, int], arguments: Mapping[str, Any], stream: int) -> None:
    """:func:`call_function` of this extension, which is loaded first if necessary."""
    call_function(launch_function(extension), addresses, arguments, stream)
