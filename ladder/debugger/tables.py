"""What the debugger shows, as tables of rich."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ladder.debugger.fragments import Matrix
from ladder.debugger.session import Stop

_BANKS, _BANK_BYTES = 32, 4
_LONGEST = 60
#: Characters of a value in a table by lane.
_LONGEST_IN_CELL = 22
#: Terminals with so many columns show masks of lanes.
_WIDE = 100
#: How elements of shared memory are shown: their bytes and the format of :mod:`struct`.
FORMATS = {
    "f32": (4, "f"),
    "f16": (2, "e"),
    "bf16": (2, "bf16"),
    "u32": (4, "I"),
    "s32": (4, "i"),
    "hex": (4, "hex"),
}
#: The label of numbers of instructions.
UNOPTIMISED = (
    "built with nvcc -G: it executes more instructions than the usual build, which ladder compare counts"
)

_STATES = {
    "barrier": "at a block barrier",
    "warp barrier": "at a warp barrier",
    "event": "waits",
    "join": "waits for other lanes",
}


def lanes_text(mask: int) -> str:
    """``lanes 0-3, 8``, or ``lanes 0-30 by 2``."""
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    if not lanes:
        return "no lane"
    steps = {after - lane for lane, after in pairwise(lanes)}
    if len(lanes) > 2 and len(steps) == 1 and steps != {1}:
        return f"lanes {lanes[0]}-{lanes[-1]} by {steps.pop()}"
    parts: list[list[int]] = []
    for lane in lanes:
        if parts and parts[-1][-1] == lane - 1:
            parts[-1].append(lane)
        else:
            parts.append([lane])
    text = ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)
    return f"lane{'s' if len(lanes) > 1 else ''} {text}"


def text_of(value: Any) -> str:
    """A value on one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{name}={text_of(one)}" for name, one in value.items()) + "}"
    elif isinstance(value, list):
        text = "[" + ", ".join(map(text_of, value[:8])) + (", ..." if len(value) > 8 else "") + "]"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def source_lines(file: str) -> list[str]:
    """The lines of a file; none if it cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def source_line(file: str, line: int) -> str:
    """A line of a file; "" if it has none of this number."""
    lines = source_lines(file)
    return lines[line - 1] if 0 < line <= len(lines) else ""


def where(at: Mapping[str, Any]) -> str:
    """A thread and its place, on one line."""
    block, thread = (",".join(map(str, at[name])) for name in ("block", "thread"))
    place = f"{os.path.basename(at.get('file', ''))}:{at.get('line', 0)} in {at.get('function', '?')}"
    return f"{place}, block ({block}) warp {at['warp']} lane {at['lane']} = thread ({thread})"


def stop_lines(stop: Stop, reason: str) -> list[Text]:
    """Why and where it stopped, with the source line and the lanes that are there."""
    lines = [Text(reason, style="bold")] if reason else []
    if stop.at:
        at = stop.at
        lines.append(Text(where(at)))
        if text := source_line(at.get("file", ""), at.get("line", 0)):
            lines.append(Text(f"{at['line']:>5}  {text}", style="cyan"))
        moment = f"instruction {stop.number:,} of launch {stop.launch['number']}"
        others = "" if at["lanes"] == 0xFFFFFFFF else f"; together: {lanes_text(at['lanes'])}"
        lines.append(Text(f"       {moment}{others}", style="dim"))
    return lines


def listing(file: str, line: int, marked: Sequence[int], context: int = 5) -> Table:
    """The source around a line; ``marked`` lines have breakpoints."""
    table = Table.grid(padding=(0, 1))
    lines = source_lines(file)
    for number in range(max(line - context, 1), min(line + context, len(lines)) + 1):
        text = lines[number - 1]
        sign = "b" if number in marked else " "
        arrow = ">" if number == line else " "
        table.add_row(f"{sign}{arrow}", f"{number:>5}", Text(text, style="cyan" if number == line else ""))
    return table


def variables_tables(variables: Sequence[Mapping[str, Any]], lane: int) -> RenderableType:
    """Variables by lane: first those that are the same in all lanes or too long for a column, then a row for
    each lane (or several neighbours with the same values), a column for each variable.
    """
    same = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    differing = []
    for one in variables:
        shown = {lane: text_of(value) for lane, value in enumerate(one["values"]) if value is not None}
        if not shown:
            reason = next(iter(one["reasons"].values()), "no lane is here")
            same.add_row(
                Text(one["name"], style="bold"), Text(reason, style="dim"), Text(one["type"], style="dim")
            )
        elif len(set(shown.values())) == 1:
            value = Text(next(iter(shown.values())))
            same.add_row(Text(one["name"], style="bold"), value, Text(one["type"], style="dim"))
        elif max(map(len, shown.values())) > _LONGEST_IN_CELL:
            hint = f"differs by lane: print {one['name']}, or as a matrix: tile {one['name']}"
            same.add_row(
                Text(one["name"], style="bold"), Text(hint, style="dim"), Text(one["type"], style="dim")
            )
        else:
            differing.append(one)
    parts: list[RenderableType] = [same] if same.row_count else []
    if differing:
        parts.append(by_lane(differing, lane))
    return Group(*parts) if parts else Text("no variables are in scope here", style="dim")


def by_lane(variables: Sequence[Mapping[str, Any]], lane: int) -> Table:
    """A row for each lane, or for neighbours with the same values."""
    table = Table(box=box.SIMPLE, padding=(0, 1))
    table.add_column("lane", justify="right")
    for one in variables:
        table.add_column(Text(one["name"]), justify="right")
    rows = [
        [text_of(one["values"][number]) if one["values"][number] is not None
         else one["reasons"].get(str(number), "") for one in variables]
        for number in range(32)
    ]  # fmt: skip
    begin = 0
    while begin < 32:
        end = begin
        while end < 31 and rows[end + 1] == rows[begin]:
            end += 1
        if any(rows[begin]):
            label = f"{begin}-{end}" if end > begin else f"{begin}"
            table.add_row(label, *map(Text, rows[begin]), style="bold" if begin <= lane <= end else "")
        begin = end + 1
    return table


def matrix_table(matrix: Matrix, width: int, most: int | None = None) -> Group:
    """A matrix, or its first columns, with the lanes that hold its rows; columns that do not fit follow
    below.
    """
    columns = min(len(matrix.elements[0]), most or len(matrix.elements[0]))
    texts = [
        ["" if number is None else f"{number:.4g}" for number in row[:columns]] for row in matrix.elements
    ]
    fitting = (width - 16) // (max(len(text) for row in texts for text in row) + 2)
    per_part = fitting // 8 * 8 or max(2, fitting // 2 * 2)
    parts: list[RenderableType] = [Text(matrix.title, style="bold")]
    for begin in range(0, columns, per_part):
        end = min(begin + per_part, columns)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
        table.add_column("row", justify="right")
        table.add_column("lanes")
        for column in range(begin, end):
            table.add_column(str(column), justify="right")
        for row, shown in enumerate(texts):
            held = [lane for lane in matrix.lanes[row][begin:end] if lane is not None]
            mask = sum(1 << lane for lane in set(held))
            table.add_row(str(row), lanes_text(mask).partition(" ")[2], *shown[begin:end])
        parts.append(table)
    return Group(*parts)


def banks_table(data: bytes, begin: int, rows: int, kind: str, width: int) -> Table:
    """Shared memory from an offset on, a row for every 128 bytes, or for half of them and less if they do not
    fit; a column for each of the 32 banks.
    """
    size, form = FORMATS[kind]
    cell = 9 * _BANK_BYTES // size
    banks = _BANKS
    while banks > 4 and 8 + banks * (cell + 2) > width:
        banks //= 2
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title="shared memory by bank")
    table.add_column("offset", justify="right")
    table.add_column("banks")
    for bank in range(banks):
        table.add_column(f"+{bank}", justify="right")
    start = begin // (_BANKS * _BANK_BYTES) * (_BANKS * _BANK_BYTES)
    for offset in range(start, min(start + rows * _BANKS * _BANK_BYTES, len(data)), banks * _BANK_BYTES):
        first = offset // _BANK_BYTES % _BANKS
        cells = [
            _elements(data[at : at + _BANK_BYTES], form)
            for at in range(offset, offset + banks * _BANK_BYTES, _BANK_BYTES)
        ]
        table.add_row(str(offset), f"{first}-{first + banks - 1}", *cells)
    return table


def _elements(data: bytes, form: str) -> str:
    if len(data) < _BANK_BYTES:
        return ""
    if form == "hex":
        return data[::-1].hex()
    if form == "bf16":
        return " ".join(f"{struct.unpack('<f', bytes(2) + data[i : i + 2])[0]:.3g}" for i in (0, 2))
    numbers = struct.unpack(f"<{_BANK_BYTES // struct.calcsize(form)}{form}", data)
    return " ".join(f"{one:.4g}" if form in "fe" else str(one) for one in numbers)


def stack_table(frames: Sequence[Mapping[str, Any]], level: int) -> Table:
    table = Table.grid(padding=(0, 2))
    for number, frame in enumerate(frames):
        name = frame["function"] + (" (inlined)" if frame["inlined"] else "")
        place = f"{os.path.basename(frame['file'])}:{frame['line']}"
        style = "bold" if frame["level"] == level else ""
        table.add_row(f"#{number}", Text(name, style=style), Text(place))
    return table


def warps_table(warps: Sequence[Mapping[str, Any]], focus: tuple[int, int, int], width: int) -> Table:
    """Where the lanes of each warp are: a row for lanes that are together."""
    is_wide = width >= _WIDE
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for name in ("block", "warp", "lanes", *(["mask"] if is_wide else []), "state", "line"):
        table.add_column(name, no_wrap=name not in ("lanes", "state"))
    for warp in warps:
        block = ",".join(map(str, warp["block"]))
        style = "bold" if (warp["block_number"], warp["warp"]) == focus[:2] else ""
        if not warp["paths"]:
            gaps = [""] * (2 if is_wide else 1)
            table.add_row(block, str(warp["warp"]), *gaps, "has exited", "", style="dim")
        for path in warp["paths"]:
            lanes = [lanes_text(path["lanes"]).partition(" ")[2]]
            if is_wide:
                lanes.append("".join("#" if path["lanes"] >> lane & 1 else "." for lane in range(32)))
            state = _STATES.get(path["state"], path["state"])
            line = Text(f"{os.path.basename(path['file'])}:{path['line']}")
            table.add_row(block, str(warp["warp"]), *lanes, state, line, style=style)
    return table


def mbarriers_table(mbarriers: Sequence[tuple[int, str]]) -> RenderableType:
    if not mbarriers:
        return Text("no mbarrier of this block has been initialised", style="dim")
    table = Table(box=box.SIMPLE, padding=(0, 1))
    table.add_column("offset", justify="right")
    table.add_column("mbarrier")
    for offset, text in mbarriers:
        table.add_row(str(offset), text)
    return table
