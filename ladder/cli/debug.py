"""``ladder debug``: stops a rung or a program on the emulator, steps it forward and back, shows variables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ladder.cli.options import add_command, add_flags_option, add_option_option, chosen_options, nvcc_flags
from ladder.cli.problems import add_problem_options, operation_of_stages, problem_of
from ladder.common import files
from ladder.common.terminal import console
from ladder.errors import LadderError

if TYPE_CHECKING:
    from ladder.debugger import Session

_PROGRAM_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx")


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(commands, "debug", _run, "step through a rung or a program, forward and back")
    parser.epilog = "At its prompt, help lists the commands. docs/debugger.md shows a session."
    parser.add_argument("target", metavar="STAGE|prog.cu", nargs="?")
    parser.add_argument(
        "--command", "-c", action="append", default=[], metavar="TEXT", help="carry this out, then ask on"
    )
    parser.add_argument(
        "--script", type=Path, metavar="FILE", help="carry out the lines of this file and end"
    )
    parser.add_argument(
        "--check", action="store_true", help="run it under the sanitizer and stop at findings"
    )
    parser.add_argument(
        "--lines-only",
        action="store_true",
        help="debug the optimised build, whose counts are the usual ones: it has lines, but no variables",
    )
    parser.add_argument(
        "--dap", action="store_true", help="speak the Debug Adapter Protocol on stdin and stdout, for editors"
    )
    add_flags_option(parser)
    parser.add_argument("--arch", help="virtual GPU")
    add_option_option(parser)
    add_problem_options(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.debugger import Adapter, Prompt

    if options.dap:
        Adapter(sys.stdin.buffer, sys.stdout.buffer, partial(_launched, options)).serve()
        return 0
    if not options.target:
        raise LadderError("debug takes a rung or a program", "For example ladder debug v1")
    lines = None if options.script is None else _script_lines(options.script)
    with _session(options) as session:
        prompt = Prompt(session, console)
        prompt.begin()
        prompt.run(options.command, echoes=True)
        if lines is not None:
            prompt.run(lines, echoes=True)
        elif sys.stdin.isatty():
            prompt.run(_typed())
        else:
            prompt.run(sys.stdin, echoes=True)
    return 0


def _script_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LadderError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        hint = "--script takes a file with one of the debugger's commands on each line."
        raise LadderError(f"{path} is not UTF-8 text", hint) from error


def _session(options: argparse.Namespace, output: IO[bytes] | None = None) -> Session:
    from ladder.debugger import How, debug_program, debug_stage
    from ladder.stages import discover

    how = How(options.arch, options.lines_only, options.check)
    path = Path(options.target)
    if path.suffix in _PROGRAM_SUFFIXES:
        files.require_file(path)
        flags = nvcc_flags(options)
        return debug_program([path], options.program_arguments, how, flags=flags, output=output)
    operation = operation_of_stages([options.target])
    problem = problem_of(options, operation, operation.default_problem)
    chosen = chosen_options(options)
    return debug_stage(discover()[options.target], problem, how, options=chosen, output=output)


def _launched(options: argparse.Namespace, request: Mapping[str, Any], output: IO[bytes]) -> Session:
    """The session of an editor's launch configuration: target, problem, check, linesOnly, arch, args."""
    target = str(request.get("target") or options.target or "")
    if not target:
        raise LadderError("the launch configuration has no target", 'For example "target": "v1"')
    stage = target if Path(target).suffix in _PROGRAM_SUFFIXES else _stage_of(target)
    wanted = {"problem": "problem", "check": "check", "linesOnly": "lines_only", "arch": "arch"}
    given = {name: request[key] for key, name in wanted.items() if request.get(key)}
    words = [str(word) for word in request.get("args", [])]
    chosen = {**vars(options), **given, "target": stage, "program_arguments": words}
    return _session(argparse.Namespace(**chosen), output)


def _stage_of(target: str) -> str:
    """A rung's name; its folder will do, too."""
    return Path(target).name if Path(target).is_dir() else target


def _typed() -> Iterator[str]:
    """Lines typed at the prompt, with history where there is readline."""
    import contextlib

    from ladder.debugger import PROMPT

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - input() then has history and editing
    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print()
