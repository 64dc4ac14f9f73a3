"""``ladder bank``: counts a shared-memory access given on the command line, or places a tile of Hopper's."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ladder.cli.options import add_command, add_picture_option, not_negative
from ladder.cli.output import print_lines, save_picture
from ladder.common.terminal import console

if TYPE_CHECKING:
    from ladder.counts.banks import Placement

_EXAMPLES = """\
examples:
  ladder bank ldmatrix.x4 "lane % 16 * 256 + lane / 16 * 16" --swizzle 3,4,4
  ladder bank wgmma 128x64 --swizzle 128 --k 16       rows of K as B's, K-major
  ladder bank wgmma 128x64 --swizzle 128 --major mn   the same tile as V: its rows run along k
  ladder bank wgmma 64x16 --descriptor 0x4000004000010040
  ladder bank tma 64x64 --swizzle 128                 a box of 64 rows of 64 elements
"""

_TILE_OPS = ("wgmma", "tma")
#: What each kind of operation leaves without meaning.
_NOT_FOR = {
    "wgmma": ("width", "active"),
    "tma": ("width", "active", "major", "k", "descriptor"),
    "lanes": ("major", "k", "descriptor", "start"),
}


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands,
        "bank",
        _run,
        "count the conflicts of an access, or place a tile of wgmma or TMA",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "op",
        metavar="OP",
        help="ld, st, ldmatrix, stmatrix, atom, or PTX: ld.v4.f32; wgmma, an operand of it, or tma, a box",
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help='byte address in terms of lane, as in C: "(lane %% 16) * 256 + lane / 16 * 16"; '
        "for wgmma and tma the tile's rows and columns: 128x64",
    )
    parser.add_argument("--width", type=int, help="bytes per lane (4), or 8x8 tiles (4)")
    parser.add_argument(
        "--swizzle",
        metavar="B,M,S",
        help="swizzle<B, M, S> applied to the byte addresses; for wgmma and tma 32, 64, 128 bytes or none",
    )
    parser.add_argument("--active", metavar="LANES", help="active lanes: 0-15,20 or a mask 0x0000ffff")
    parser.add_argument(
        "--element",
        type=int,
        metavar="BYTES",
        help="also give swizzles for elements of this size (2 and 4); the size of a tile's elements (2)",
    )
    tiles = parser.add_argument_group("wgmma and tma")
    tiles.add_argument("--start", type=not_negative, metavar="BYTE", help="where the tile begins (0)")
    tiles.add_argument(
        "--major", choices=("k", "mn"), help="wgmma: what a row of the tile runs along (k); mn is transposed"
    )
    tiles.add_argument("--k", type=not_negative, metavar="K", help="wgmma: the product's first k (0)")
    tiles.add_argument(
        "--descriptor",
        metavar="BITS",
        help="wgmma: this matrix descriptor instead of the tile's, with ADDRESS as ROWSxK",
    )
    add_picture_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.counts import banks
    from ladder.counts.banks import AccessError, parse_mask
    from ladder.show.render import exploration_lines

    is_tile = options.op in _TILE_OPS
    for name in _NOT_FOR[options.op if is_tile else "lanes"]:
        if getattr(options, name) is not None:
            raise AccessError(f"--{name} means nothing for {options.op}")
    if is_tile:
        return _place(options)
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


def _place(options: argparse.Namespace) -> int:
    from ladder.show.render import placement_lines

    found = _tile(options)
    if options.picture:
        save_picture([found], f"ladder bank {options.op} {options.address}", options.picture)
    print_lines(placement_lines(found, console.width))
    return 0


def _tile(options: argparse.Namespace) -> Placement:
    from ladder.counts import banks
    from ladder.counts.banks import AccessError

    shape = banks.parse_shape(options.address)
    swizzle = banks.parse_swizzle(options.swizzle if options.swizzle is not None else "none")
    element_bytes = 2 if options.element is None else options.element
    start = options.start or 0
    if options.op == "tma":
        return banks.box(shape, swizzle=swizzle, element_bytes=element_bytes, address=start)
    if len(shape) != 2:
        raise AccessError(f"{options.address} is no shape of an operand's tile", "For example 128x64.")
    major = options.major or "k"
    if options.descriptor is None:
        descriptor = banks.tile_descriptor(
            *shape, swizzle=swizzle, major=major, element_bytes=element_bytes, k=options.k or 0, start=start
        )
    else:
        for name in ("swizzle", "k", "start"):
            if getattr(options, name) is not None:
                raise AccessError(f"--{name} is part of the descriptor", "Leave out one of them.")
        descriptor = banks.parse_descriptor(options.descriptor)
    rows = shape[0] if major == "k" or options.descriptor is not None else shape[1]
    return banks.operand(descriptor, rows, major=major, element_bytes=element_bytes, k=options.k or 0)
