"""One shared-memory access, bank by bank: written by hand, swizzled, or taken from a stage. Where the chunks
of a wgmma operand and of a TMA box lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.counts.banks.access import (
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
    from ladder.counts.banks.explanation import (
        Explanation,
        Instruction,
        explain,
        explain_launches,
        explain_line,
        parse_place,
    )
    from ladder.counts.banks.explorer import ELEMENT_SIZES, Exploration, Swizzle, explore, parse_op
    from ladder.counts.banks.expression import Expression, ExpressionError
    from ladder.counts.banks.placed_lines import PlacedLine, placed_instructions, placed_line
    from ladder.counts.banks.placement import (
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
