"""One shared-memory access, bank by bank: written by hand, swizzled, or taken from a stage."""

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

_NAMES = {
    "Access": "access",
    "AccessError": "access",
    "BANKS": "access",
    "BANK_BYTES": "access",
    "Cell": "access",
    "ELEMENT_SIZES": "explorer",
    "Explanation": "explanation",
    "Exploration": "explorer",
    "Expression": "expression",
    "ExpressionError": "expression",
    "Instruction": "explanation",
    "LANES": "access",
    "Pass": "access",
    "ROW_BYTES": "access",
    "Service": "access",
    "Swizzle": "explorer",
    "explain": "explanation",
    "explain_launches": "explanation",
    "explore": "explorer",
    "lanes_text": "access",
    "parse_mask": "access",
    "parse_op": "explorer",
    "parse_place": "explanation",
    "serve": "access",
}

__getattr__ = door(__name__, _NAMES)
