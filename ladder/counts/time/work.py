"""What a launch asks of each unit: amounts by kind, from the PTX instructions that were executed.

Only what ptxas cannot remove is counted: products, exponentials, fp32 arithmetic, and accesses to memory.
Integer arithmetic, moves and branches are left out, since ptxas merges and removes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: A line in the kernel's own file, by file and number: the innermost one, which may call a header's function.
Place = tuple[str, int]

_SECTOR_BYTES = 32
_LANES = 32
#: What the L1 moves per clock cycle.
_WAVEFRONT_BYTES = 128
_SECTORS_PER_WAVEFRONT = _WAVEFRONT_BYTES // _SECTOR_BYTES
_WIDTH = re.compile(r"(?:\.v(\d))?\.[bfsu](\d+)$")
#: Types of inputs that have the rate of another one.
_SAME_RATE = {"bf16": "f16", "e4m3": "f8", "e5m2": "f8", "u8": "s8"}
_TYPE = r"\.(f64|f32|f16|bf16|tf32|e4m3|e5m2|s32|s8|u8)"
_PRODUCT = re.compile(r"(wgmma\.mma_async|wmma\.mma|mma)\b.*?\.m(\d+)n(\d+)k(\d+)\b")
_EXPONENTIAL = re.compile(r"(ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh)\.approx\b|div\.(approx|full)\b")
_FLOAT = re.compile(r"(fma|mad|mul|add|sub|min|max)(\.\w+)*\.f32(x2)?$")
#: Instructions that ptxas translates one to one, besides those that other units count.
_SURE = re.compile(r"(ldmatrix|stmatrix|shfl|wgmma\.|redux|bar\.|barrier\.)")


@dataclass(frozen=True)
class LaunchWork:
    """The amounts of one launch by kind of work, and by kernel line.

    ``items`` has, by kind, how many work items have the same amount, and this amount. One block does a whole
    item; only persistent blocks do more than one.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    amounts: Mapping[str, float]
    places: Mapping[Place, Mapping[str, float]] = field(default_factory=dict)
    launches: int = 1
    items: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


def launch_work(
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    rows: Iterable[Mapping[str, Any]],
    launches: int = 1,
) -> LaunchWork:
    """The work of a launch whose executed instructions are ``rows``: their ``ptx`` or opcode, own line and
    counters, as in :meth:`ladder.run.emulator.Launch.instructions`.
    """
    total: dict[str, float] = {}
    places: dict[Place, dict[str, float]] = {}
    for row in rows:
        if not row["executed"]:
            continue
        amounts = instruction_amounts(opcode_of(row["ptx"]), row)
        place = places.setdefault((row["kernel_file"], row["own_line"]), {})
        for kind, amount in amounts.items():
            total[kind] = total.get(kind, 0) + amount
            place[kind] = place.get(kind, 0) + amount
    return LaunchWork(
        kernel,
        grid,
        block,
        _fused(total),
        {place: _fused(amounts) for place, amounts in places.items() if amounts},
        launches,
    )


def opcode_of(ptx: str) -> str:
    """The opcode of an instruction's text, without its guard."""
    words = ptx.split()
    return next((word.rstrip(";") for word in words if not word.startswith("@")), "")


def instruction_amounts(opcode: str, row: Mapping[str, Any]) -> dict[str, float]:
    """The amounts of one instruction that was executed, by kind of work."""
    warps = row["threads"] / _LANES
    found: dict[str, float] = {}
    if product := _PRODUCT.match(opcode):
        kind, operations = _product(product[1], opcode, *(int(size) for size in product.groups()[1:]))
        found[kind] = operations * warps
    elif _EXPONENTIAL.match(opcode):
        found["exponential"] = row["threads"]
    elif float_ := _FLOAT.match(opcode):
        name = {"mad": "fma", "sub": "add", "min": "minimum", "max": "minimum"}.get(float_[1], float_[1])
        found[name] = row["threads"] * (2 if float_[3] else 1)
    if found or _SURE.match(opcode):
        found["issue"] = warps
    if opcode.startswith("shfl"):
        found["shuffle"] = warps
    found["shared"] = _sum(row, "wavefronts_ld", "wavefronts_st", "wavefronts_gmma")
    sectors = _sum(row, "global_sectors_ld", "global_sectors_st")
    found["l1"] = min(
        sectors / _SECTORS_PER_WAVEFRONT, row["threads"] * _access_bytes(opcode) / _WAVEFRONT_BYTES
    )
    # Other loads may hit in the L1.
    past_l1 = ["global_sectors_ld"] if opcode.startswith("cp.async.cg") else []
    found["l2_read"] = _SECTOR_BYTES * _sum(row, "tma_sectors_ld", *past_l1)
    found["l2_write"] = _SECTOR_BYTES * _sum(row, "global_sectors_st", "tma_sectors_st")
    return {kind: amount for kind, amount in found.items() if amount}


def _product(name: str, opcode: str, m: int, n: int, k: int) -> tuple[str, float]:
    """The kind of a matrix product, and the operations of one warp."""
    types = re.findall(_TYPE, opcode.partition(f"m{m}n{n}k{k}")[2])
    sums, inputs = (types[0], types[1]) if len(types) > 1 else ("f32", "f16")
    if name == "wmma.mma":  # lists the types of sums alone, unless the inputs are not f16
        inputs = types[1] if len(types) > 2 else "f16"
    instruction = {"wgmma.mma_async": "wgmma", "wmma.mma": "wmma"}.get(name, f"m{m}n{n}k{k}")
    operations = 2.0 * m * n * k / (4 if name == "wgmma.mma_async" else 1) / (2 if ".sp" in opcode else 1)
    kind = "mma" if instruction == "m16n8k16" else instruction
    return f"{kind} {sums} {_SAME_RATE.get(inputs, inputs)}", operations


def _fused(amounts: Mapping[str, float]) -> dict[str, float]:
    """Amounts in which each product may be fused with a sum, as ptxas does where PTX names no rounding."""
    found = dict(amounts)
    products, sums = found.pop("mul", 0), found.pop("add", 0)
    if fma := found.pop("fma", 0) + max(products, sums):
        found["fma"] = fma
        found["issue"] = found.get("issue", 0) - min(products, sums) / _LANES
    return found


def _access_bytes(opcode: str) -> int:
    """The bytes that a thread loads or stores; of cp.async, the most."""
    width = _WIDTH.search(opcode)
    return int(width[1] or 1) * int(width[2]) // 8 if width else 16


def _sum(row: Mapping[str, Any], *counters: str) -> int:
    """The counters' sum; one that the model does not know is None and adds nothing."""
    return sum(row[counter] or 0 for counter in counters)


def added(parts: Iterable[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """The sum of amounts, each times its factor."""
    total: dict[str, float] = {}
    for amounts, factor in parts:
        for kind, amount in amounts.items():
            total[kind] = total.get(kind, 0) + factor * amount
    return total
