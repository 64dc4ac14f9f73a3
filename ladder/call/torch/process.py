"""The process of a script: ``python -m ladder.call.torch.process FINDINGS script.py [arguments]``.

FINDINGS is the file for the sanitizer's findings, or ``-`` to run without it. The launches go into the log
that the environment names, see :func:`ladder.run.emulator.run_counted`.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import TracebackType

from ladder.call.torch.activation import activate
from ladder.errors import LadderError
from ladder.run.emulator import session
from ladder.stages import DEFAULT_ARCH

#: What Triton says of its own driver for GPUs.
_TRITON_DRIVER = "libcuda.so cannot found"


def hint(error: BaseException) -> str:
    """What works instead of that which has failed with ``error``; "" if nothing is known."""
    if _TRITON_DRIVER in str(error):
        return (
            "Triton's kernels do not run on tensors of this cuda. Launch them with CPU tensors within "
            "ladder.counting(), in Python: docs/any_cuda.md has an example."
        )
    return ""


def main() -> None:
    findings, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        """Shows the traceback as Python does for a script, without the frames that lead to it."""
        while traceback and traceback.tb_frame.f_code.co_filename != script:
            traceback = traceback.tb_next
        sys.__excepthook__(kind, error.with_traceback(traceback), traceback)
        if words := hint(error):
            print(words, file=sys.stderr)

    sys.excepthook = show
    try:
        activate()
        if findings == "-":
            runpy.run_path(script, run_name="__main__")
        else:
            _run_checked(script, Path(findings))
    except LadderError as error:
        # Its message says what would work instead; the traceback would only show this package's frames.
        sys.stdout.flush()
        sys.exit(f"error: {error}")


def _run_checked(script: str, findings: Path) -> None:
    checked = None
    try:
        with session(os.environ.get("LADDER_ARCH") or DEFAULT_ARCH, check=True) as checked:
            runpy.run_path(script, run_name="__main__")
    finally:
        if checked:
            findings.write_text(checked.findings_json, encoding="utf-8")


if __name__ == "__main__":
    main()
