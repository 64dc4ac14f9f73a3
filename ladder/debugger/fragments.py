"""Tiles in the registers of a warp as matrices: which lane holds which element."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ladder.debugger.values import NoValue

_TILE = re.compile(r"RegTile<(\w+),\s*(\d+),\s*(\d+)")
_VECTOR = re.compile(r"RegVec<(\w+),\s*(\d+),\s*([\w:]+)>")
#: Of a fragment of mma.m16n8k16, by the register's number and lane: row and column of its (first) element.
#: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
FRAGMENTS = ("a", "b", "c")


@dataclass(frozen=True)
class Matrix:
    """Elements by row and column, and the lanes that hold them; None where nothing is."""

    title: str
    elements: Sequence[Sequence[float | None]]
    lanes: Sequence[Sequence[int | None]]


class _Builder:
    def __init__(self, title: str, rows: int, columns: int) -> None:
        self.title = title
        self.elements: list[list[float | None]] = [[None] * columns for _ in range(rows)]
        self.lanes: list[list[int | None]] = [[None] * columns for _ in range(rows)]

    def put(self, row: int, column: int, element: float, lane: int, swapped: bool = False) -> None:
        row, column = (column, row) if swapped else (row, column)
        self.elements[row][column] = element
        self.lanes[row][column] = lane

    def done(self) -> Matrix:
        return Matrix(self.title, self.elements, self.lanes)


def matrices(
    text: str, kind: str, values: Sequence[Any], fragment: str = "", element: str = ""
) -> list[Matrix]:
    """The matrices that ``values`` by lane are: of a tile or vector of the tile library, whose type is
    ``kind``, or with ``fragment`` of the operands (a, b) or accumulators (c) of mma.m16n8k16 in an array.

    ``element`` is f16 or bf16, for pairs in 32-bit registers. Raises :class:`NoValue` for anything else.
    """
    if match := _TILE.match(kind):
        return [_tile(text, kind, match, values)]
    if match := _VECTOR.match(kind):
        return [_vector(text, match, values)]
    if fragment not in FRAGMENTS:
        raise NoValue(
            f"{text} is {kind or 'a number'}, no tile; for an array of fragments of mma.m16n8k16 say which: "
            f"tile {text} a, b or c, and f16 or bf16"
        )
    return _fragments(text, values, fragment, element)


def _tile(text: str, kind: str, match: re.Match[str], values: Sequence[Any]) -> Matrix:
    element, rows, columns = match[1], int(match[2]), int(match[3])
    is_row_layout = "Layout::col" not in kind and "(Layout)1" not in kind
    built = _Builder(f"{text}: {rows} x {columns} of {element}", rows, columns)
    for lane, value in _present(values):
        for i, strip in enumerate(value["pairs"]):
            for j, block in enumerate(strip):
                for quarter, pair in enumerate(block):
                    line = 16 * i + 8 * (quarter % 2) + lane // 4
                    span = 16 * j + 8 * (quarter // 2) + 2 * (lane % 4)
                    for k, number in enumerate(_pair(pair, element)):
                        built.put(line, span + k, number, lane, not is_row_layout)
    return built.done()


def _vector(text: str, match: re.Match[str], values: Sequence[Any]) -> Matrix:
    element, length = match[1], int(match[2])
    built = _Builder(f"{text}: {length} of {element}", 1, length)
    runs_along_lines = match[3].endswith("lines") or match[3].endswith("0")
    for lane, value in _present(values):
        for i, block in enumerate(value["values"]):
            for slot, number in enumerate(block):
                entry = (
                    8 * slot + lane // 4 if runs_along_lines else 8 * (slot // 2) + 2 * (lane % 4) + slot % 2
                )
                built.put(0, 16 * i + entry, number, lane)
    return built.done()


def _fragments(text: str, values: Sequence[Any], fragment: str, element: str) -> list[Matrix]:
    found = []
    names = {"a": "operand A", "b": "operand B", "c": "accumulators"}
    first = next(iter(_present(values)), (0, None))[1]
    registers = {"a": 4, "b": 2, "c": 4}[fragment]
    for path in _innermost(first):
        own = [None if value is None else _at(value, path) for value in values]
        count = len(own[next(_present(values))[0]] or ())
        if count % registers:
            raise NoValue(f"{text} has {count} registers in a row; {names[fragment]} takes {registers}")
        for begin in range(0, count, registers):
            at = "".join(f"[{index}]" for index in path) + (f"[{begin}...]" if count > registers else "")
            size = {"a": (16, 16), "b": (16, 8), "c": (16, 8)}[fragment]
            built = _Builder(f"{text}{at}: {names[fragment]} of mma.m16n8k16", *size)
            for lane, numbers in _present(own):
                for register in range(registers):
                    value = numbers[begin + register]
                    if fragment == "c":
                        built.put(lane // 4 + 8 * (register // 2), 2 * (lane % 4) + register % 2, value, lane)
                        continue
                    for k, number in enumerate(_pair(value, element or "f16")):
                        along = 2 * (lane % 4) + k
                        if fragment == "a":
                            built.put(
                                lane // 4 + 8 * (register % 2), along + 8 * (register // 2), number, lane
                            )
                        else:
                            built.put(along + 8 * register, lane // 4, number, lane)
            found.append(built.done())
    return found


def _present(values: Sequence[Any]) -> Any:
    return ((lane, value) for lane, value in enumerate(values) if value is not None)


def _innermost(value: Any) -> list[tuple[int, ...]]:
    """The indices of the innermost arrays."""
    if not isinstance(value, list):
        raise NoValue("only an array has fragments")
    if not value or not isinstance(value[0], list):
        return [()]
    return [(index, *rest) for index, inner in enumerate(value) for rest in _innermost(inner)]


def _at(value: Any, path: Sequence[int]) -> Any:
    for index in path:
        value = value[index]
    return value


def _pair(pair: Any, element: str) -> tuple[float, float]:
    """Two adjacent elements: a float2, or two of 16 bits in one register."""
    if isinstance(pair, Mapping):
        return float(pair["x"]), float(pair["y"])
    bits = int(pair) & 0xFFFFFFFF
    if "bf" in element:
        low, high = struct.unpack("<ff", struct.pack("<II", bits << 16 & 0xFFFFFFFF, bits & 0xFFFF0000))
    else:
        low, high = struct.unpack("<ee", struct.pack("<I", bits))
    return float(low), float(high)
