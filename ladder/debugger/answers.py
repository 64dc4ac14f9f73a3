"""The questions that a debugged process answers where it has stopped."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ladder import _emulator
from ladder.debugger.stopped import ADDRESS_MASK, NO_VARIABLES, Stopped
from ladder.debugger.values import MOST_ELEMENTS, Expression, NoValue, Value, pointer_text

#: Elements of an array in a list of variables.
_MOST_SHOWN = 9
#: What each thread has besides its variables.
_OWN_NAMES = {"threadIdx", "blockIdx", "blockDim", "gridDim", "warp", "lane", "block"}


class Answers:
    """Answers requests, each by the method of its name, as data for JSON. ``focus`` is [block, warp, lane],
    by default the thread that has stopped; ``level`` is one of its calls.

    They raise :class:`NoValue`, which says why there is no answer.
    """

    def __init__(self, stepper: _emulator.Stepper, stopped: Stopped) -> None:
        self._stepper = stepper
        self._at = stopped

    def breakable(self, file: str, line: int, names: Sequence[str] = ()) -> dict[str, Any]:
        """The first line with code from this one on, in a file whose path ends so; "" is the kernel's own.
        A condition of a breakpoint there has ``names``.
        """
        kernel = self._at.kernel
        own = kernel.rows[0][3]
        paths = [path for path in kernel.lines if _is_path(path, file or (own[-1][0] if own else ""))]
        found = [(later, path) for path in paths for later in kernel.lines[path] if later >= line]
        if not paths:
            files = sorted({os.path.basename(path) for path in kernel.lines})
            raise NoValue(f"the kernel has no code from {file}; it has code from {', '.join(files)}")
        if not found:
            raise NoValue(f"{os.path.basename(paths[0])} has no code at line {line} or behind it")
        later, path = min(found)
        self._require_names(path, later, names)
        return {"file": path, "line": later}

    def function(self, name: str, names: Sequence[str] = ()) -> dict[str, Any]:
        """The first line of a function behind its head."""
        info = self._at.kernel.info
        code: dict[str, list[tuple[str, int]]] = {}
        for function, _, _, positions in self._at.kernel.rows:
            if positions and positions[0][1]:
                code.setdefault(info.function_name(function), []).append(positions[0][:2])
        for other, (begin, end) in info.functions():  # of the module's other kernels
            if other not in code:
                code[other] = [(file, line) for at, file, line in info.code if begin < at < end]
        for full, places in code.items():
            if name in (full, full.partition("<")[0]) and places:
                file, line = next((place for place in places if place != places[0]), places[0])
                self._require_names(file, line, names)
                return {"file": file, "line": line}
        known = ", ".join(sorted({full.partition("<")[0] for full in code})[:12])
        raise NoValue(f"the kernel calls no function {name}; there are {known}")

    def _require_names(self, file: str, line: int, names: Sequence[str]) -> None:
        """Raises :class:`NoValue` if a name means nothing on this line; what another kernel's names mean is
        only known when it runs.
        """
        starts = self._at.kernel.starts.get(file, {}).get(line, ())
        known = {one.name for at in starts for one in self._at.variables(at) if one.is_somewhere}
        unknown = next((name for name in names if name not in known | _OWN_NAMES), None)
        if unknown is None or not starts:
            return
        if not self._at.kernel.info.has_variables:
            raise NoValue(NO_VARIABLES)
        near = difflib.get_close_matches(unknown, known, 1)
        raise NoValue(
            f"there is no {unknown} at {os.path.basename(file)}:{line}, or the compiler has optimised it away"
            + (f"; did you mean {near[0]}?" if near else "")
        )

    def position(self, focus: Sequence[int] | None = None) -> dict[str, Any]:
        return self._at.position(self._at.chosen(focus))

    def stack(self, focus: Sequence[int] | None = None) -> dict[str, Any]:
        """The calls, the innermost first, with those of functions that were inlined."""
        rank, warp, lane, _ = self._at.chosen(focus)
        frames = []
        for level, instruction in enumerate(self._stepper.calls((rank, warp, lane, 0))):
            function, _, _, positions = self._at.kernel.rows[instruction]
            name = self._at.kernel.info.function_name(function)
            for number, (file, line, _, inlined) in enumerate(positions or [("", 0, 0, "")]):
                is_inlined = number + 1 < len(positions)
                frames.append({
                    "function": (inlined or "?") if is_inlined else name,
                    "file": file, "line": line, "level": level, "inlined": is_inlined,
                })  # fmt: skip
        return {"frames": frames}

    def warps(self) -> dict[str, Any]:
        """The warps of the blocks that run, with their lanes by place."""
        return {
            "warps": [
                {
                    "block": self._at.index(block), "block_number": block, "warp": warp,
                    "paths": [
                        {"lanes": lanes, "state": state, **self._at.place(at)} for lanes, at, state in paths
                    ],
                }
                for block, _, warp, paths in self._stepper.warps()
            ]
        }  # fmt: skip

    def variables(self, focus: Sequence[int] | None = None, level: int = 0) -> dict[str, Any]:
        """The variables in scope, each with its value by lane."""
        rank, warp, lane, block = self._at.chosen(focus)
        calls = self._stepper.calls((rank, warp, lane, 0))
        if level >= len(calls):
            raise NoValue("the lane has exited")
        return {
            "variables": [
                {
                    "name": variable.name,
                    **self._by_lane(Expression(variable.name), rank, warp, block, level, _MOST_SHOWN),
                }
                for variable in reversed(self._at.variables(calls[level]))
                if variable.name.isidentifier()
            ],
            "has_variables": self._at.kernel.info.has_variables,
        }

    def evaluate(self, text: str, focus: Sequence[int] | None = None, level: int = 0) -> dict[str, Any]:
        rank, warp, lane, block = self._at.chosen(focus)
        expression = Expression(text)
        found = self._by_lane(expression, rank, warp, block, level)
        if found["values"][lane] is None:
            raise NoValue(f"{text}: {found['reasons'].get(str(lane), 'the lane has exited')}")
        return found

    def _by_lane(
        self, expression: Expression, rank: int, warp: int, block: int, level: int, most: int = MOST_ELEMENTS
    ) -> dict[str, Any]:
        values: list[Any] = [None] * 32
        reasons: dict[str, str] = {}
        kind = ""
        live = 0
        for lanes, _, _ in self._at.paths(rank, warp):
            live |= lanes
        for lane in _lanes(live):
            try:
                value = expression.value(self._at.names((rank, warp, lane, block), level))
                if isinstance(value, Value):
                    kind = type_text(value)
                    value = value.plain(most)
                values[lane] = value
            except NoValue as error:
                reasons[str(lane)] = str(error)
        return {"values": values, "type": kind, "reasons": reasons}

    def address(self, text: str, focus: Sequence[int] | None = None, level: int = 0) -> dict[str, Any]:
        """Where an expression of one lane lies: in shared memory (offset) or in global memory (address)."""
        rank, warp, lane, block = self._at.chosen(focus)
        value = Expression(text).value(self._at.names((rank, warp, lane, block), level))
        if not isinstance(value, Value):
            raise NoValue(f"{text} is a number, which is nowhere")
        if value.base is None:
            raise NoValue(f"{text} is in a register or in local memory, not in shared or global memory")
        if value.address >> 56 > 1:
            raise NoValue(f"{text} is at {pointer_text(value.address)}, not in shared or global memory")
        address, space = value.address, value.address >> 56
        value.raw()  # raises if it cannot be read
        is_shared = space == 1
        at = (address & ADDRESS_MASK) - self._stepper.shared_begin() if is_shared else address
        return {"is_shared": is_shared, "block": block, "address": at, "bytes": value.type.bytes}

    def shared(self, focus: Sequence[int] | None = None) -> dict[str, Any]:
        return {"hex": self._stepper.shared(self._at.chosen(focus)[0]).hex()}

    def mbarriers(self, focus: Sequence[int] | None = None) -> dict[str, Any]:
        return {"mbarriers": self._stepper.mbarriers(self._at.chosen(focus)[0])}

    def instructions(self, begin: int, end: int) -> dict[str, Any]:
        end = min(end, len(self._at.kernel.rows))
        return {"instructions": [self._at.place(at) for at in range(max(begin, 0), end)]}

    def findings(self) -> dict[str, Any]:
        return {"findings": self._stepper.findings()}


def type_text(value: Value) -> str:
    kind = value.type
    return f"{kind.target.name} *" if kind.kind == "pointer" and kind.target else kind.name


def _lanes(mask: int) -> Iterator[int]:
    return (lane for lane in range(32) if mask >> lane & 1)


def _is_path(path: str, end: str) -> bool:
    return path == end or path.endswith("/" + end)
