"""``ladder serve``: serves live pages with a compiler, so that a class can change kernels in its browsers."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path
from typing import Any

from rich.markup import escape

from ladder.cli.options import add_command, not_negative
from ladder.common import processes
from ladder.common.terminal import console, errors

_EVERYWHERE = "0.0.0.0"


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands,
        "serve",
        _run,
        "serve live pages with a compiler, whose kernels readers edit",
    )
    parser.epilog = "No TLS and no passwords: for a room, not for the internet. See docs/live.md."
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("build/site"),
        metavar="DIR",
        help="the site or its live pages, as make site builds them (%(default)s)",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help=f"who may connect: this machine (%(default)s), or with {_EVERYWHERE} everyone who reaches it",
    )
    parser.add_argument("--port", type=not_negative, default=8000, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--jobs", type=not_negative, default=0, metavar="N", help="compilers at a time (one per core)"
    )


@processes.ended_by_signals()
def _run(options: argparse.Namespace) -> int:
    from ladder.course.serving import Limits, PageServer

    with PageServer(options.folder, (options.host, options.port), Limits(jobs=options.jobs)) as server:
        address = f"http://{_own_address(options.host)}:{server.server_address[1]}{server.prefix}"
        for gap in server.compiler.gaps:
            errors.print(f"On this system compilers may {gap}.", style="yellow")
        first = next(iter(server.compiler.kernels))
        console.print(escape(f"{address}{first}.html    Ctrl-C ends it"), highlight=False, soft_wrap=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print()
    return 0


def _own_address(host: str) -> str:
    """The address to type elsewhere: of the network card that leads out, if all of them are served."""
    if host != _EVERYWHERE:
        return host
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # sends nothing; reserved for documentation (RFC 5737)
            return str(one.getsockname()[0])
        except OSError:
            return socket.gethostname()
