"""How ``ladder verify`` makes the sizes of a reference smaller: one rule, which docs/verify.md states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ladder.errors import UnsupportedProblem

#: Lengths of a block, the first one with few enough inputs counts.
BLOCKS = (128, 64, 32, 16, 8)
#: The most elements that all inputs may have together.
MOST_ELEMENTS = 1 << 18


def smaller(size: int, block: int) -> int:
    """Two blocks for an even number of whole blocks, three for an odd one, and the same tail."""
    blocks, tail = divmod(size, block)
    return size if blocks < 4 else (2 + blocks % 2) * block + tail


def integer_constants(module: Any) -> dict[str, int]:
    """The constants of a module that may be sizes."""
    return {
        name: value
        for name, value in vars(module).items()
        if type(value) is int and not name.startswith("_") and name.lower() != "seed"
    }


def shrunk(module: Any, constants: Mapping[str, int]) -> dict[str, int]:
    """Makes these constants of the module smaller; returns those that have changed, with their values.

    Raises :class:`UnsupportedProblem` if the inputs are large with the shortest blocks, too.
    """
    for block in BLOCKS:
        found = {name: smaller(value, block) for name, value in constants.items()}
        for name, value in found.items():
            setattr(module, name, value)
        if _elements(module.get_inputs()) <= MOST_ELEMENTS:
            return {name: value for name, value in found.items() if value != constants[name]}
    raise UnsupportedProblem(
        f"its inputs have more than {MOST_ELEMENTS} elements in its smallest form",
        "Give its constants: --with N=65",
    )


def _elements(inputs: Any) -> int:
    return sum(math.prod(getattr(one, "shape", ())) for one in inputs)
