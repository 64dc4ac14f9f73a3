"""Where the operands and boxes of a line's products of a warpgroup and of TMA lie in shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.counts.banks.instruction import SourceInstruction, source_fields
from ladder.counts.banks.placement import Descriptor, Placement, box, operand
from ladder.errors import LadderError
from ladder.run.emulator import TensorBox

if TYPE_CHECKING:
    from ladder.run.emulator import Launch, Product, ProductOperand

_SHAPE = re.compile(r"wgmma\.mma_async\S*\.m64n(\d+)k(\d+)")


@dataclass(frozen=True)
class PlacedInstruction(SourceInstruction):
    """A ``wgmma`` or TMA instruction with its counts over the launch.

    ``placements`` are of its first product or box in the lowest block, ``block`` and ``warp`` whose that was.
    ``cost`` says in words what one product takes; "" for boxes, whose ``sectors`` are between L2 and shared
    memory, in all, or None where they are not known.
    """

    cost: str
    sectors: int | None
    block: int
    warp: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class PlacedLine:
    """The operands or the box of one of a line's instructions, ``chosen``; ``instructions`` holds all."""

    stage: str
    path: Path
    line: int
    text: str
    instructions: tuple[PlacedInstruction, ...]
    chosen: PlacedInstruction

    @property
    def title(self) -> str:
        return f"{self.stage}, {self.path.name}:{self.line}"

    @property
    def cost(self) -> str:
        """What the line's instructions take, in words, each kind once."""
        products = dict.fromkeys(one.cost for one in self.instructions if one.cost)
        boxes = [one.sectors for one in self.instructions if not one.cost]
        known = [sectors for sectors in boxes if sectors is not None]
        rest = " and those of boxes that leave the tensor" if len(known) < len(boxes) else " in all"
        moved = f"TMA moves boxes, {sum(known):,} sectors{rest}, with the swizzle of the tensor map"
        return "; ".join([*products, *([moved] if boxes else [])])


def placed_line(
    launches: Iterable[Launch], stage: str, file_name: str, line: int, instruction: int | None = None
) -> PlacedLine | None:
    """The products and boxes of a line; the first instruction, or number ``instruction``.

    None if the line has none, or has no such instruction.
    """
    found = [one for one in placed_instructions(launches) if (file_name, line) in one.places]
    chosen = next((one for one in found if instruction in (None, one.number)), None)
    if chosen is None:
        return None
    path, text = chosen.source_line(file_name, line)
    return PlacedLine(stage, path, line, text, tuple(found), chosen)


def placed_instructions(launches: Iterable[Launch]) -> list[PlacedInstruction]:
    """All products and boxes of the launches."""
    return [one for launch in launches for one in _instructions(launch)]


def _instructions(launch: Launch) -> Iterator[PlacedInstruction]:
    taken: list[Product | TensorBox] = [*launch.products(), *launch.boxes()]
    if not taken:
        return
    rows = launch.instructions().set_index("index")
    for one in sorted(taken, key=lambda one: one.instruction):
        row = rows.loc[one.instruction]
        fields = source_fields(one.instruction, row)
        ptx, is_box = fields["ptx"], isinstance(one, TensorBox)
        yield PlacedInstruction(
            **fields,
            cost="" if is_box else _cost_of_product(ptx),
            sectors=_sectors(row) if is_box else None,
            block=one.block,
            warp=one.warp,
            placements=_box(one) if isinstance(one, TensorBox) else _operands(one, ptx),
        )


def _operands(product: Product, ptx: str) -> tuple[Placement, ...]:
    shape = _SHAPE.search(ptx)
    if shape is None:
        raise LadderError(f"{ptx} has no shape")
    # Of k elements there are two chunks of 16 bytes.
    element_bytes = 32 // int(shape[2])

    def placement(name: str, one: ProductOperand) -> Placement:
        major = "mn" if one.mn_major else "k"
        name = f"{name} of m64n{shape[1]}k{shape[2]}"
        descriptor = Descriptor.of(one.descriptor)
        return operand(descriptor, one.rows, major=major, element_bytes=element_bytes, name=name)

    of_b = placement("B", product.b)
    return (of_b,) if product.a is None else (placement("A", product.a), of_b)


def _box(one: TensorBox) -> tuple[Placement, ...]:
    shape = tuple(reversed(one.elements))
    return (
        box(
            shape,
            swizzle=one.swizzle,
            element_bytes=one.element_bytes,
            address=one.address,
            coordinates=one.coordinates,
        ),
    )


def _cost_of_product(ptx: str) -> str:
    shape = _SHAPE.search(ptx)
    if shape is None or shape[2] != "16":
        return "a product of a warpgroup"
    of_a = "" if re.search(r"}\s*,\s*{", ptx) else "A, 16 wavefronts, and "
    return (
        f"a product m64n{shape[1]}k16 reads {of_a}B, {int(shape[1]) // 4} wavefronts, 128 bytes each and "
        "never with a conflict"
    )


def _sectors(row: Any) -> int | None:
    import pandas as pd

    counts = [row["tma_sectors_ld"], row["tma_sectors_st"]]
    return None if any(pd.isna(count) for count in counts) else sum(map(int, counts))
