"""One shared-memory access, bank by bank: written by hand, swizzled, or taken from a stage. Where the chunks
of a wgmma operand and of a TMA box lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.banks.access import (
        BANK_BYTES,
        BANKS,
        LANES,
        ROW_BYTES,
        Access,
        AccessError,
        Cell,
        Pass,
        Service,
        lanes_text,
        parse_mask,
        serve,
    )
    from ladder.banks.explanation import (
        Explanation,
        Instruction,
        explain,
        explain_launches,
        explain_line,
        parse_place,
    )
    from ladder.banks.explorer import ELEMENT_SIZES, Exploration, Swizzle, explore, parse_op
    from ladder.banks.expression import Expression, ExpressionError
    from ladder.banks.placed_lines import PlacedLine, placed_instructions, placed_line
    from ladder.banks.placement import (
        CHUNK_BYTES,
        Chunk,
        Descriptor,
        Placement,
        box,
        operand,
        parse_descriptor,
        parse_shape,
        parse_swizzle,
        tile_descriptor,
    )

__getattr__ = door(__name__)
