"""``ladder time``: the least time that a rung, or a program, can take on a GPU that need not be there.

With ``--experimental`` it is an estimate of a rung's time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from ladder.cli.options import (
    add_command,
    add_flags_option,
    add_json_option,
    add_option_option,
    add_picture_option,
    add_problem_options,
    chosen_options,
    not_negative,
    nvcc_flags,
    read_problem,
)
from ladder.cli.output import say_written, write_rows
from ladder.cli.problems import operation_of_stages
from ladder.common.terminal import console, errors, print_table
from ladder.errors import LadderError

if TYPE_CHECKING:
    from ladder.counts.time import Bound, Gpu


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands, "time", _run, "the least time that a rung or program can take on a GPU, by unit"
    )
    parser.epilog = "Counts are the emulator's; it takes no GPU. docs/time.md says what is left out."
    parser.add_argument("what", metavar="STAGE|prog.cu")
    parser.add_argument(
        "--gpu", default="h100", metavar="NAME", help="h100, h200, a100, l4, rtx4090, ..., or a .toml file"
    )
    parser.add_argument("--clock", type=float, metavar="MHZ", help="of the SMs (the GPU's highest)")
    parser.add_argument(
        "--lines", type=not_negative, default=5, metavar="COUNT", help="source lines to show (5)"
    )
    parser.add_argument(
        "--experimental", action="store_true", help="estimate a stage's time by replaying its warps"
    )
    parser.add_argument(
        "--what-if", action="append", default=[], metavar="NAME=VALUE",
        help="change a parameter of the model: l2_latency=100, ...; repeatable",
    )  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="ignore cached counts and count again")
    add_problem_options(parser, with_target=False)
    add_option_option(parser)
    add_flags_option(parser)
    add_json_option(parser)
    add_picture_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.counts.time import load_gpu, require_clock
    from ladder.show import plots
    from ladder.show.render import bound_rows, bound_table, bounding_lines_table

    gpu = load_gpu(options.gpu)
    if options.clock is not None:
        require_clock(options.clock)
    if options.picture:
        plots.check_kind(options.picture)
    if options.what_if and not options.experimental:
        raise LadderError("--what-if is for estimates", "Add --experimental.")
    if options.experimental:
        return _estimate(options, gpu)
    if options.what.endswith(".cu"):
        title, note, bound = _program(options, gpu)
    else:
        title, note, bound = _stage(options, gpu)
    if options.json != "-":
        print_table(bound_table(bound, title))
        console.print(note, style="dim", highlight=False, soft_wrap=True)
        if options.lines and bound.shares():
            print_table(bounding_lines_table(bound, options.lines))
    if options.picture:
        plots.save(plots.bound_picture({title: bound}), options.picture)
        say_written(options.picture)
    write_rows(options.json, bound_rows(bound, options.what))
    return 0


def _estimate(options: argparse.Namespace, gpu: Gpu) -> int:
    from ladder.counts.time import estimate_stage
    from ladder.show import plots
    from ladder.show.render import estimate_rows, estimate_table
    from ladder.stages import discover

    if options.what.endswith(".cu"):
        raise LadderError("there is no estimate for programs, only for stages", "Leave out --experimental.")
    options.backend = "emulator"
    stage = discover()[options.what]
    problem = read_problem(options, operation_of_stages([stage.name]))
    chosen = {"options": chosen_options(options), "clock_mhz": options.clock}
    found = estimate_stage(stage, problem, gpu, changes=_changes(options.what_if), **chosen)
    title = f"{stage.name}, {problem}"
    if options.json != "-":
        print_table(estimate_table(found, title, options.lines))
        console.print(_EXPERIMENTAL, style="dim", highlight=False, soft_wrap=True)
        if options.what_if:
            before = estimate_stage(stage, problem, gpu, **chosen)
            change = found.ms / before.ms - 1
            console.print(f"{', '.join(options.what_if)}: {change:+.1%}", highlight=False)
    if options.picture:
        plots.save(plots.waits_picture(found, title), options.picture)
        say_written(options.picture)
    write_rows(options.json, estimate_rows(found, options.what))
    return 0


#: Below an estimate.
_EXPERIMENTAL = "Experimental: docs/time.md says how far it is from measured times."


def _changes(texts: list[str]) -> dict[str, float]:
    changes = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            changes[name] = float(value)
        except ValueError:
            raise LadderError(
                f"--what-if {text}: {value!r} is no number", "For example l2_latency=100."
            ) from None
        if not changes[name] > 0:
            raise LadderError(f"--what-if {text}: the value must be positive")
    return changes


def _stage(options: argparse.Namespace, gpu: Gpu) -> tuple[str, str, Bound]:
    """The title, how the work was counted, and the bound of a stage."""
    from ladder.counts.time import bound_of, count_stage, least_bytes
    from ladder.stages import discover

    options.backend = "emulator"
    stage = discover()[options.what]
    problem = read_problem(options, operation_of_stages([stage.name]))
    counted = count_stage(stage, problem, gpu, options=chosen_options(options), fresh=options.fresh)
    read, written = least_bytes(counted.problem)
    bound = bound_of(gpu, counted.launches, clock_mhz=options.clock, read_bytes=read, written_bytes=written)
    note = "Counted by the emulator on this problem."
    if counted.parts != ((counted.problem, 1),):
        times = " and ".join(f"{factor:.6g} times {part}" for part, factor in counted.parts)
        note = f"Counted by the emulator on smaller problems: {times}."
    return f"{stage.name}, {counted.problem}", note, bound


def _program(options: argparse.Namespace, gpu: Gpu) -> tuple[str, str, Bound]:
    """The same of a program, which runs on the emulator."""
    from ladder.counts.time import bound_of, count_program
    from ladder.errors import ExecutionError
    from ladder.run.emulator import emulate
    from ladder.show.render import uncounted_line

    result = emulate(
        [Path(options.what)], options.program_arguments, flags=nvcc_flags(options), arch=gpu.arch_of()
    )
    if result.fault or result.signal:
        raise ExecutionError(f"{options.what} failed: {result.fault or result.signal}")
    if result.uncounted:
        errors.print(escape(uncounted_line(result.uncounted)), highlight=False, soft_wrap=True)
    bound = bound_of(gpu, count_program(result.launches), clock_mhz=options.clock)
    kernels = ", ".join(dict.fromkeys(one.kernel for one in result.launches))
    note = f"Counted by the emulator; launches one after another: {kernels}. DRAM is not bounded."
    return Path(options.what).name, note, bound
