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
    from ladder.banks.explorer import (
        ELEMENT_SIZES,
        Exploration,
        Swizzle,
        explore,
        parse_op,
    )
    from ladder.banks.expression import (
        Expression,
        ExpressionError,
    )
    from ladder.banks.placed_lines import (
        PlacedInstruction,
        PlacedLine,
        placed_instructions,
        placed_line,
    )
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

_NAMES = {
    "Access": "access",
    "AccessError": "access",
    "BANKS": "access",
    "BANK_BYTES": "access",
    "CHUNK_BYTES": "placement",
    "Cell": "access",
    "Chunk": "placement",
    "Descriptor": "placement",
    "ELEMENT_SIZES": "explorer",
    "Explanation": "explanation",
    "Exploration": "explorer",
    "Expression": "expression",
    "ExpressionError": "expression",
    "Instruction": "explanation",
    "LANES": "access",
    "Pass": "access",
    "PlacedInstruction": "placed_lines",
    "PlacedLine": "placed_lines",
    "Placement": "placement",
    "ROW_BYTES": "access",
    "Service": "access",
    "Swizzle": "explorer",
    "box": "placement",
    "explain": "explanation",
    "explain_launches": "explanation",
    "explain_line": "explanation",
    "explore": "explorer",
    "lanes_text": "access",
    "operand": "placement",
    "parse_descriptor": "placement",
    "parse_mask": "access",
    "parse_op": "explorer",
    "parse_place": "explanation",
    "parse_shape": "placement",
    "parse_swizzle": "placement",
    "placed_instructions": "placed_lines",
    "placed_line": "placed_lines",
    "serve": "access",
    "tile_descriptor": "placement",
}

__getattr__ = door(__name__, _NAMES)
