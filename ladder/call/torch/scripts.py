"""Runs a script that uses ``torch.cuda`` in a process of its own and counts its launches."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ladder.call.torch.device_library import cuda_home, device_library
from ladder.common import files
from ladder.run.emulator import ProgramResult, likeliest_first, parse_findings, run_counted
from ladder.stages import DEFAULT_ARCH, require_arch


def run_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    arch: str | None = None,
    check: bool = False,
    output: BinaryIO | None = None,
) -> ProgramResult:
    """Runs a Python script with the emulated GPU as torch's "cuda" and returns its launches.

    The script is unchanged; it reads and writes the caller's standard streams, or writes to ``output``.
    ``check`` runs its kernels under the sanitizer. A crash ends the script's process alone: the result then
    has its ``signal`` and what was counted before; with ``check`` its findings are lost.

    Raises :class:`BuildError` if the device does not compile for the installed torch, and
    :class:`ExecutionError` if the script's process cannot be run.
    """
    arch = arch or DEFAULT_ARCH
    require_arch(arch)
    files.require_file(script, (".py",))
    cuda_home()
    device_library()
    with tempfile.TemporaryDirectory(prefix="ladder-") as directory:
        findings = Path(directory) / "findings.json"
        command = [
            sys.executable,
            "-m",
            "ladder.call.torch.process",
            str(findings) if check else "-",
            str(script),
        ]
        result = run_counted([*command, *arguments], arch, name=script.name, output=output)
        if not findings.exists():
            return replace(result, is_judged=not check)
        found, remarks = parse_findings(findings.read_text(encoding="utf-8"))
        return replace(result, findings=tuple(likeliest_first(found)), remarks=tuple(remarks))
