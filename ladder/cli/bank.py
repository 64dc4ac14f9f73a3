"""``ladder bank``: counts a shared-memory access given on the command line."""

from __future__ import annotations

import argparse
from typing import Any

from ladder.cli.options import add_command, add_picture_option
from ladder.cli.output import print_lines, save_picture
from ladder.common.terminal import console


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands,
        "bank",
        _run,
        "count the bank conflicts of an access that you write down, and mend them",
    )
    parser.add_argument("op", metavar="OP", help="ld, st, ldmatrix, stmatrix, atom, or PTX: ld.v4.f32")
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help='byte address in terms of lane, as in C: "(lane %% 16) * 256 + lane / 16 * 16"',
    )
    parser.add_argument("--width", type=int, help="bytes per lane (4), or 8x8 tiles (4)")
    parser.add_argument("--swizzle", metavar="B,M,S", help="swizzle<B, M, S> applied to the byte addresses")
    parser.add_argument("--active", metavar="LANES", help="active lanes: 0-15,20 or a mask 0x0000ffff")
    parser.add_argument(
        "--element",
        type=int,
        metavar="BYTES",
        help="also give swizzles for elements of this size (2 and 4)",
    )
    add_picture_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder import banks
    from ladder.banks import AccessError, parse_mask
    from ladder.render import exploration_lines

    if options.element not in (None, *banks.ELEMENT_SIZES):
        raise AccessError(
            f"--element {options.element} is no size of an element",
            f"It is one of {', '.join(map(str, banks.ELEMENT_SIZES))} bytes.",
        )
    found = banks.explore(
        options.op,
        options.address,
        width=options.width,
        swizzle=banks.Swizzle.parse(options.swizzle) if options.swizzle is not None else None,
        active=parse_mask(options.active) if options.active is not None else 2**32 - 1,
    )
    if options.picture:
        swizzled = f", swizzled by {found.swizzle} (bytes)" if found.swizzle else ""
        save_picture(found.service, f"{found.access} at {options.address}{swizzled}", options.picture)
    print_lines(exploration_lines(found, console.width, options.element))
    return 0
