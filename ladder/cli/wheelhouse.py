"""``ladder wheelhouse``: collects all wheels, the compiler's included, for machines without a network."""

from __future__ import annotations

import argparse
import importlib.metadata
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ladder import project
from ladder.cli.options import add_command
from ladder.common.terminal import console
from ladder.compile import toolchain
from ladder.errors import LadderError

# pip comes with every virtual environment, and this project is built where it is installed.
_LEFT_OUT = {"pip", project.DISTRIBUTION}


def installed() -> list[str]:
    """``name==version`` of everything installed besides this package, sorted."""
    found = {
        (distribution.metadata["Name"], distribution.version)
        for distribution in importlib.metadata.distributions()
    }
    return sorted(f"{name}=={version}" for name, version in found if name.lower() not in _LEFT_OUT)


def fill(folder: Path, index_urls: Sequence[str] = ()) -> list[Path]:
    """Downloads wheels of all packages installed here, and of the pinned CUDA compiler, into ``folder``.

    The wheels fit machines with the same processor architecture and Python version. ``index_urls`` are extra
    indexes for local versions such as torch's 2.13.0+cpu; only these are looked up there, because an
    unreachable index would delay every package.

    Raises :class:`LadderError` with pip's message.
    """
    print(f"Gathering wheels in {folder} ...", file=sys.stderr, flush=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LadderError(f"cannot make {folder}: {error.strerror}", "Name another folder.") from error
    indexes = [word for url in index_urls for word in ("--extra-index-url", url)]
    local = [requirement for requirement in installed() if "+" in requirement]
    if local:
        _pip_wheel(folder, ["--no-deps", *indexes, *local])
    _pip_wheel(folder, ["--no-deps", *(one for one in installed() if "+" not in one)])
    _pip_wheel(folder, [toolchain.REQUIREMENT])
    return sorted(folder.glob("*.whl"))


def _pip_wheel(folder: Path, words: Iterable[str]) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--wheel-dir", str(folder), "--find-links", str(folder), *words]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if not line.startswith("WARNING")]
        raise LadderError("pip could not fetch all of it:\n" + "\n".join(lines[-6:]))


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands, "wheelhouse", _run, "gather wheels for machines without a network in one folder"
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument(
        "--extra-index-url", action="append", default=[], metavar="URL", help="ask this index, too"
    )


def _run(options: argparse.Namespace) -> int:

    wheels = fill(options.folder, options.extra_index_url)
    megabytes = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    console.print(
        f"{options.folder}: {len(wheels)} wheels, {megabytes:,.0f} MB", highlight=False, soft_wrap=True
    )
    console.print(
        f"Without a network: make compare WHEELHOUSE={shlex.quote(str(options.folder))}",
        highlight=False,
        soft_wrap=True,
    )
    return 0
