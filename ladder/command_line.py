"""What the command ``ladder`` understands: its commands and their options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ladder import project
from ladder.commands import (
    build_stages,
    check_stages,
    compare_stages,
    count_access,
    draw_picture,
    emulate_program,
    examine_machine,
    explain_access,
    gather_wheels,
    list_stages,
    make_stage,
    profile_stages,
    run_stage,
    show_lines,
)
from ladder.exercises.commands import add_exercise_command


def command_line() -> argparse.ArgumentParser:
    """The parser of all commands; ``run`` of what it returns is the command's function."""
    parser = argparse.ArgumentParser(
        prog="ladder",
        description="Flash-attention kernels, rung by rung: built, run, checked and counted.",
        epilog=f"More: {project.url()}",
    )
    parser.add_argument("--version", action="version", version=f"flash-ladder {project.version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    compare = _command(
        commands, "compare", compare_stages, "run the stages on one problem and print the table"
    )
    compare.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    _add_problem_options(compare)
    _add_json_option(compare)
    compare.add_argument("--fresh", action="store_true", help="emulate again what has been emulated before")

    run = _command(commands, "run", run_stage, "run one stage, never from the cache, and check it")
    run.add_argument("stage", metavar="STAGE")
    _add_problem_options(run)
    _add_json_option(run)

    build = _command(commands, "build", build_stages, "build stages without running them")
    build.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    _add_target_options(build)

    lines = _command(commands, "lines", show_lines, "show a stage's source with the counts beside each line")
    lines.add_argument("stage", metavar="STAGE")
    shown = lines.add_mutually_exclusive_group()
    shown.add_argument(
        "--context", type=_not_negative, default=3, metavar="LINES", help="lines around those that count (3)"
    )
    shown.add_argument("--all", action="store_true", help="whole files")
    lines.add_argument("--html", type=Path, metavar="FILE", help="write a page that needs nothing else, too")
    _add_problem_options(lines)
    _add_json_option(lines)

    explain = _command(
        commands, "explain", explain_access, "show one shared-memory access of a line: lanes, banks, passes"
    )
    explain.add_argument(
        "place", metavar="STAGE:LINE", help="of kernel.cu; STAGE:FILE:LINE of a helper's file"
    )
    explain.add_argument(
        "--instruction", type=int, metavar="N", help="of several at that line (the one with most conflicts)"
    )
    _add_picture_option(explain)
    _add_problem_options(explain)

    check = _command(
        commands,
        "check",
        check_stages,
        "run stages under the sanitizer: races, memory and barrier faults, by line",
    )
    check.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    _add_problem_options(check)
    _add_json_option(check)

    bank = _command(
        commands,
        "bank",
        count_access,
        "count the bank conflicts of an access that you write down, and mend them",
    )
    bank.add_argument("op", metavar="OP", help="ld, st, ldmatrix, stmatrix, atom, or PTX: ld.v4.f32")
    bank.add_argument(
        "address",
        metavar="ADDRESS",
        help='byte address in terms of lane, as in C: "(lane %% 16) * 256 + lane / 16 * 16"',
    )
    bank.add_argument("--width", type=int, help="bytes a lane (4), or 8x8 tiles (4)")
    bank.add_argument("--swizzle", metavar="B,M,S", help="swizzle<B, M, S> applied to the byte addresses")
    bank.add_argument("--active", metavar="LANES", help="lanes that take part: 0-15,20 or a mask 0x0000ffff")
    bank.add_argument(
        "--element",
        type=int,
        metavar="BYTES",
        help="say swizzles for elements of this size as well (2 and 4)",
    )
    _add_picture_option(bank)

    profile = _command(
        commands,
        "profile",
        profile_stages,
        "read a GPU's counters with Nsight Compute, beside the prediction",
    )
    profile.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    profile.add_argument(
        "--import",
        nargs="+",
        type=Path,
        dest="reports",
        metavar="FILE",
        help="profile nothing; read reports (.ncu-rep) of stages or of any kernels, raw and source pages of "
        "them (.csv), or what results/measure_counters.py wrote",
    )
    profile.add_argument("--report", type=Path, metavar="FILE.ncu-rep", help="keep the report")
    _add_problem_options(profile, with_target=False)
    _add_option_option(profile.add_argument_group("where"))
    _add_json_option(profile)

    plot = _command(
        commands, "plot", draw_picture, "draw a picture of the lessons; without a name, list them"
    )
    plot.add_argument("name", nargs="?", metavar="NAME")
    plot.add_argument("--out", type=Path, metavar="FILE", help="a .png, .svg or .pdf (NAME.png)")

    _command(commands, "stages", list_stages, "list the stages")
    _command(
        commands, "doctor", examine_machine, "say what is installed and what to do about what is missing"
    )

    new = _command(
        commands, "new", make_stage, "make a rung of your own: a working copy of one that is there"
    )
    new.add_argument("name", metavar="NAME")
    new.add_argument("--from", dest="origin", required=True, metavar="STAGE", help="what to start from")
    new.add_argument(
        "--folder", type=Path, metavar="DIR", help="where to put it (my_rungs, here or in a folder above)"
    )

    add_exercise_command(commands)

    wheelhouse = _command(
        commands, "wheelhouse", gather_wheels, "gather wheels for machines without a network in one folder"
    )
    wheelhouse.add_argument("folder", type=Path, metavar="DIR")
    wheelhouse.add_argument(
        "--extra-index-url", action="append", default=[], metavar="URL", help="ask this index, too"
    )

    emulate = _command(
        commands,
        "emulate",
        emulate_program,
        "build and run any CUDA program: ladder emulate prog.cu [-- arguments]",
    )
    emulate.epilog = "Returns the program's exit code; 1 where that is 0 and one of its kernels faulted."
    emulate.add_argument("sources", nargs="+", type=Path, metavar="prog.cu")
    emulate.add_argument(
        "-I", action="append", default=[], dest="include", metavar="DIR", help="for the compiler"
    )
    emulate.add_argument(
        "-D", action="append", default=[], dest="define", metavar="NAME", help="for the compiler"
    )
    emulate.add_argument(
        "--nvcc-flags",
        action="append",
        default=[],
        metavar="FLAGS",
        help='any more for the compiler, behind its own: --nvcc-flags="-O1 --extended-lambda"',
    )
    emulate.add_argument("--arch", default=None, help="virtual GPU (sm_80)")
    emulate.add_argument(
        "--check", action="store_true", help="run it under the sanitizer; --json then writes what it found"
    )
    _add_json_option(emulate)
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.set_defaults(run=run)
    return parser


def _add_problem_options(parser: argparse.ArgumentParser, with_target: bool = True) -> None:
    group = parser.add_argument_group("problem")
    group.add_argument("--problem", metavar="B,H,N,M,d", help="batch, heads, queries, keys, head dim")
    group.add_argument("--kv-heads", type=int, metavar="N", help="heads of k and v (as many as q has)")
    group.add_argument("--dtype", help="f32, f16 or bf16 (the first that a stage takes)")
    group.add_argument("--causal", action="store_true", help="query i sees keys j <= i alone")
    group.add_argument("--scale", type=_number, help="factor of the logits (1 / sqrt(d))")
    group.add_argument("--inputs", default="normal", help="normal, large, negative, equal or dominant")
    if with_target:
        _add_target_options(parser)


def _add_target_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where")
    group.add_argument("--backend", default="auto", help="auto (a GPU if there is one), emulator or cuda")
    group.add_argument("--arch", help="virtual GPU of the emulator: sm_75, sm_80, sm_86, sm_89 or sm_90")
    _add_option_option(group)


def _add_option_option(group: Any) -> None:
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the stage's stage.toml",
    )


def _add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE", help="write the rows there as JSON too; - prints them and no table"
    )


def _add_picture_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write it as .png, .svg or .pdf, too")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def _not_negative(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 0")
    return int(text)
