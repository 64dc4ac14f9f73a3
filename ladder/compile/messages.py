"""Turns the messages of compilers and linkers into errors that say what to do."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from ladder.errors import BuildError
from ladder.stages import ARCHITECTURES

_SHOWN_LINES = 12
#: Libraries that programs use besides the CUDA runtime, keyed by the prefix of their functions and headers.
#: Of several prefixes the first counts.
_LIBRARIES = {
    "cublaslt": "cuBLASLt",
    "cublasxt": "cuBLASXt",
    "cublas": "more of cuBLAS than is emulated",
    "cudnn": "cuDNN",
    "cufft": "more of cuFFT than is emulated",
    "curand": "more of cuRAND than is emulated",
    "cusolver": "cuSOLVER",
    "cusparse": "cuSPARSE",
    "cutensor": "cuTENSOR",
    "nccl": "NCCL",
    "npp": "NPP",
    "nvml": "NVML",
    "nvrtc": "NVRTC",
}
#: Those of which the emulator has some functions.
_IN_PART = ("cublas", "curand", "cufft")
_GPU_ALONE = "Such a program runs only on a GPU."
_RUNTIME_NAME = r"(?:__)?cuda\w+"


def failure(name: str, what: str, message: str, command: Sequence[str]) -> BuildError:
    """The error for a failed compiler or linker; ``what`` says what ``name`` "does not" do."""
    undefined = sorted(set(_undefined(message)))
    if undefined and all(re.fullmatch(_RUNTIME_NAME, function) for function in undefined):
        return not_in_runtime(name, undefined)
    hints = [
        missing_libraries(message),
        _missing_functions(message),
        _not_offered(message),
        f"To repeat: {shlex.join(command)}",
    ]
    return BuildError(f"{name} {what}:\n{shortened(message)}", "\n".join(hint for hint in hints if hint))


def _undefined(message: str) -> list[str]:
    return re.findall(r"undefined reference to [`'‘](\w+)", message)


def not_in_runtime(name: str, functions: Iterable[str]) -> BuildError:
    """The error for a program that calls CUDA runtime functions which the emulator lacks."""
    functions = list(functions)
    if any(function.startswith("__cudaRegisterLinkedBinary") for function in functions):
        return BuildError(
            f"{name} is compiled for device code of several files (-rdc=true), which is not emulated here",
            "`ladder emulate` links such code.",
        )
    return BuildError(
        f"{name} calls what the emulated CUDA runtime does not have: {', '.join(functions)}", _GPU_ALONE
    )


def refuse_undefined(binary: Path, name: str) -> None:
    """Raises if CUDA entry points are undefined: they would silently bind to torch's runtime."""
    result = subprocess.run(["nm", "--undefined-only", str(binary)], capture_output=True, text=True)
    if result.returncode != 0:
        raise BuildError(f"nm cannot read {binary.name}: {result.stderr.strip()}")
    undefined = sorted(set(re.findall(rf"\bU ({_RUNTIME_NAME}|cu[A-Z]\w+)", result.stdout)))
    if undefined:
        raise not_in_runtime(name, undefined)


def clashes_with_newer_names(message: str) -> bool:
    """Whether a program's own functions clash with the standard library's since C++20, such as ``lerp``."""
    return bool(re.search(r"more than one instance of overloaded.*\n(?:.*\n)*?.*function \"std::", message))


def _not_offered(message: str) -> str:
    """A remark on device features that no virtual GPU has; "" if the message names none."""
    if re.search(r"requires separate compilation mode|extern function '__cudaCDP2", message):
        return "Kernels that launch kernels need relocatable device code: --nvcc-flags=-rdc=true"
    if re.search(r"not supported on \.target|requires \.target", message):
        return (
            f"--arch chooses the GPU that is emulated: {', '.join(ARCHITECTURES)}. wgmma is sm_90a's, "
            "tcgen05 sm_100a's; setmaxnreg needs one of these."
        )
    return ""


def _missing_functions(message: str) -> str:
    """A remark on functions of a library that the emulator has in part; "" if the message names none."""
    names = re.findall(rf'identifier "((?:{"|".join(_IN_PART)})\w+)" is undefined', message)
    if not names:
        return ""
    return (
        f"The emulator does not have {', '.join(dict.fromkeys(names))}. docs/any_cuda.md lists the functions "
        f"of CUDA's libraries that it has. {_GPU_ALONE}"
    )


def missing_libraries(message: str) -> str:
    """A remark on libraries that a compiler or linker did not find; "" if it found all."""
    functions = _undefined(message)
    headers = re.findall(r"fatal error: (?:\S*/)?(\w+)[\w.]*: No such file", message)
    titles = (
        next((title for start, title in _LIBRARIES.items() if name.lower().startswith(start)), "")
        for name in (*functions, *headers)
    )
    found = {title for title in titles if title}
    if any(re.match(r"cu[A-Z]", name) for name in functions):
        found.add("more of the CUDA driver API than is emulated")
    if not found:
        return ""
    if "nvrtc" in headers:
        return "NVRTC compiles kernels while a program runs. It needs no GPU: pip install flash-ladder[nvrtc]"
    if "curand_kernel" in headers:
        return (
            "cuRAND's device functions are headers alone, which a wheel has: pip install flash-ladder[curand]"
        )
    return (
        f"The program uses {' and '.join(sorted(found))}. Emulated are the CUDA runtime, the functions "
        "in docs/any_cuda.md, and libraries that are headers alone (CUB, Thrust, CUTLASS). " + _GPU_ALONE
    )


def shortened(message: str) -> str:
    """The message from its first error on, at most a dozen lines."""
    lines = [line for line in message.splitlines() if line.strip()]
    pattern = re.compile(r"error|fatal|undefined reference|Killed", re.IGNORECASE)
    first = next((number for number, line in enumerate(lines) if pattern.search(line)), 0)
    shown = lines[first : first + _SHOWN_LINES]
    left = len(lines) - first - len(shown)
    return "\n".join(shown + ([f"... and {left} more lines"] if left > 0 else []))
