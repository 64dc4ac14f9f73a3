"""``ladder lab``: opens the lessons in JupyterLab."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from ladder import project
from ladder.cli.options import add_command
from ladder.common import files
from ladder.common.terminal import console
from ladder.errors import LadderError

_FIRST = "00a_cuda.ipynb"
_FOLDER = "flash-ladder"


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(commands, "lab", _run, "open the lessons in JupyterLab, in a folder of your own")
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="DIR",
        help=f"where your copies are ({_FOLDER}/; in the repository, the lessons themselves)",
    )
    parser.add_argument("--copy", action="store_true", help="only copy the lessons there")


def copy_lessons(folder: Path) -> list[Path]:
    """Copies the lessons that ``folder`` lacks, and returns these; one that is there is never overwritten.

    Links to other files of the project lead to its address. Raises :class:`LadderError`.
    """
    from ladder.stages import lessons_root

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LadderError(f"cannot make {folder}: {error.strerror}", "Name another folder.") from error
    copied = []
    for lesson in sorted(lessons_root().glob("*.ipynb")):
        copy = folder / lesson.name
        if not copy.exists():
            text = lesson.read_text(encoding="utf-8").replace("](../", f"]({project.url('blob/main')}/")
            files.write(copy, text.encode())
            copied.append(copy)
    return copied


def _run(options: argparse.Namespace) -> int:
    from ladder.stages import is_repository, lessons_root

    if options.folder is None and is_repository() and not options.copy:
        folder = lessons_root()
        root = folder.parent
    else:
        folder = root = files.expanded(options.folder or _FOLDER)
        copied = copy_lessons(folder)
        console.print(f"{folder}: {len(copied)} lessons copied", highlight=False, soft_wrap=True)
    if options.copy:
        return 0
    if importlib.util.find_spec("jupyterlab") is None:
        raise LadderError(
            "JupyterLab is not installed",
            f"{sys.executable} -m pip install '{project.DISTRIBUTION}[notebooks]'    or open the lessons in "
            f"{folder} in another program for notebooks",
        )
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.execv(sys.executable, _jupyter(root, folder / _FIRST))


def _jupyter(root: Path, lesson: Path) -> list[str]:
    """The command that opens a lesson. A login shell in its terminals would set PATH anew; in a container one
    often is root.
    """
    shell = os.environ.get("SHELL", "/bin/bash")
    return [
        *(sys.executable, "-m", "jupyterlab", str(root)),
        f"--LabApp.default_url=/lab/tree/{lesson.relative_to(root)}",
        f"--ServerApp.terminado_settings={{'shell_command': [{shell!r}]}}",
        *(["--allow-root"] if os.getuid() == 0 else []),
    ]
