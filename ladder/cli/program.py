"""The entry point of the command ``ladder``.

Exit codes: 0, success; 1, a stage or a program's kernel was wrong or failed; 2, the command could not run;
130, interrupted; 141, the reader closed the output. ``ladder emulate`` returns the program's own exit code if
that is not 0.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from ladder import project
from ladder.cli.command_line import command_line, command_list
from ladder.common import files
from ladder.common.closing import drop_output, run_until_closed
from ladder.common.terminal import errors, prepare_streams, show_error
from ladder.errors import EarlierName, LadderError

_FORMATTED = warnings.formatwarning


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    prepare_streams()
    warnings.formatwarning = _formatted
    words = list(sys.argv[1:] if arguments is None else arguments)
    program_arguments: list[str] = []
    if words[:1] in (["emulate"], ["debug"], ["time"]) and "--" in words:
        split = words.index("--")
        words, program_arguments = words[:split], words[split + 1 :]
    if not words:
        return run_until_closed(_show_commands)
    options = command_line().parse_args(_joined(words))
    options.program_arguments = program_arguments
    try:
        _require_targets(options)
        return run_until_closed(lambda: int(options.run(options)))
    except LadderError as error:
        show_error(error)
        return 2
    except KeyboardInterrupt:
        errors.print("interrupted")
        return 130
    except OSError as error:
        if error.filename is not None:
            show_error(LadderError(str(error)))
        elif isinstance(error, FileNotFoundError):
            show_error(LadderError("the working directory is no longer there", "cd to one that is."))
        else:
            drop_output()
            show_error(LadderError(f"cannot write the output: {error.strerror or error}"))
        return 2


def _formatted(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """The text of a warning; one about a rung's name does without the line of Python that raised it."""
    if issubclass(category, EarlierName):
        return f"warning: {message}\n"
    return _FORMATTED(message, category, filename, lineno, line)


def _show_commands() -> int:
    """Lists the commands with a line each."""
    for name, text in command_list().items():
        print(f"  {name:<10}  {text}")
    print(f"\nWhich of them answers which question:\n  {project.site('docs/which_tool.html')}")
    print("ladder COMMAND --help lists a command's options. First: ladder compare")
    return 0


def _joined(words: Sequence[str]) -> list[str]:
    """Joins ``--nvcc-flags FLAGS`` and ``--scale -1e-05`` with an equals sign: argparse rejects most values
    that begin with a dash."""
    joined: list[str] = []
    for word in words:
        is_option = bool(joined) and joined[-1].startswith("--") and "=" not in joined[-1]
        if is_option and (joined[-1] == "--nvcc-flags" or re.match(r"-\.?\d", word)):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _require_targets(options: argparse.Namespace) -> None:
    """Checks, before a command starts, that its output files can be written. Raises :class:`LadderError`."""
    found: dict[Path, str] = {}
    for option in ("json", "csv", "html", "picture", "report", "out"):
        target = getattr(options, option, None)
        if target is None or target == "-":
            continue
        if not str(target):
            raise LadderError(f"--{option} has no name of a file")
        path = Path(target)
        files.require_target(path)
        if path.resolve() in found:
            raise LadderError(f"--{found[path.resolve()]} and --{option} both write {path}")
        found[path.resolve()] = option
        if option == "picture":
            from ladder.show.plots import check_kind

            check_kind(path)
