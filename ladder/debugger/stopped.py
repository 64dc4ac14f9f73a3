"""A launch where it has stopped: where its threads are, and what names mean to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ladder import _emulator
from ladder.debugger.debug_info import DebugInfo, Place, Variable
from ladder.debugger.kernel import Kernel
from ladder.debugger.values import NoValue, Value

_SHARED_WINDOW, ADDRESS_MASK = 1 << 56, (1 << 56) - 1
#: The highest byte of the address of a kernel's parameter.
_PARAMETER_WINDOW = 3
OPTIMISED_AWAY = "optimised away"
NOT_HERE = "not set yet, or optimised away here"
NO_VARIABLES = "this build has lines but no variables; leave out --lines-only"

#: The rank of a thread's block among those that run, its warp, its lane, its block's linear index.
Thread = tuple[int, int, int, int]
#: The rank of a block, a warp, a lane, and which of its calls, from the innermost, which is 0.
Call = tuple[int, int, int, int]


class Stopped:
    """The launch that a stepper has stopped. ``focus`` is the thread that the user looks at."""

    def __init__(self, stepper: _emulator.Stepper) -> None:
        self._stepper = stepper
        self._kernels: dict[str, Kernel] = {}
        self.launch: dict[str, Any] = {}
        self.focus: Thread = (0, 0, 0, 0)
        # What has been read at this stop.
        self._registers: dict[tuple[Any, ...], list[int]] = {}
        self._warps: list[Any] | None = None

    def enter_launch(self) -> None:
        self.launch = self._stepper.launch()
        mangled = self.launch["mangled"]
        if mangled not in self._kernels:
            self._kernels[mangled] = Kernel(self._stepper.instructions(), DebugInfo(self._stepper.ptx()))

    def forget_reads(self) -> None:
        """At a new stop, registers and warps are read again."""
        self._registers.clear()
        self._warps = None

    @property
    def kernel(self) -> Kernel:
        return self._kernels[self.launch["mangled"]]

    def index(self, block: int) -> list[int]:
        """A block's index from its number."""
        x, y, _ = self.launch["grid"]
        return [block % x, block // x % y, block // x // y]

    def place(self, instruction: int) -> dict[str, Any]:
        function, _, ptx, positions = self.kernel.rows[instruction]
        file, line = positions[0][:2] if positions else ("", 0)
        name = self.kernel.info.function_name(function)
        return {"instruction": instruction, "file": file, "line": line, "function": name, "ptx": ptx}

    def position(self, thread: Thread) -> dict[str, Any]:
        rank, warp, lane, block = thread
        calls = self._stepper.calls((rank, warp, lane, 0))
        lanes = next((lanes for lanes, _, _ in self.paths(rank, warp) if lanes >> lane & 1), 0)
        return {
            "block": self.index(block),
            "block_number": block,
            "rank": rank,
            "warp": warp,
            "lane": lane,
            "thread": self._thread(warp, lane),
            "lanes": lanes,
            **(self.place(calls[0]) if calls else {}),
        }

    def _thread(self, warp: int, lane: int) -> list[int]:
        x, y, _ = self.launch["block"]
        number = 32 * warp + lane
        return [number % x, number // x % y, number // x // y]

    def paths(self, rank: int, warp: int) -> list[tuple[int, int, str]]:
        """The lanes of a warp that are together: lanes, instruction, state."""
        if self._warps is None:
            self._warps = self._stepper.warps()
        found = [paths for _, r, w, paths in self._warps if (r, w) == (rank, warp)]
        return list(found[0]) if found else []

    def depth(self) -> int:
        rank, warp, lane, _ = self.focus
        return len(self._stepper.calls((rank, warp, lane, 0)))

    def chosen(self, focus: Sequence[int] | None) -> Thread:
        """The thread with this block, warp and lane, of the blocks that run."""
        if focus is None:
            return self.focus
        if not self._stepper.here():
            raise NoValue("no block runs at the end of a launch; back goes to where one does")
        for block, rank, warp, _ in self._stepper.warps():
            if (block, warp) == (focus[0], focus[1]):
                return (rank, warp, focus[2], block)
        raise NoValue(f"block {focus[0]} has no warp {focus[1]}, or does not run now")

    def names(self, thread: Thread, level: int) -> Callable[[str], Any]:
        """What a name means to a lane: a variable, or one of CUDA's."""
        rank, warp, lane, block = thread
        launch = self.launch

        def named(name: str) -> Any:
            triples = {
                "threadIdx": lambda: self._thread(warp, lane),
                "blockIdx": lambda: self.index(block),
                "blockDim": lambda: launch["block"],
                "gridDim": lambda: launch["grid"],
            }
            if name in triples:
                return dict(zip("xyz", triples[name](), strict=True))
            calls = self._stepper.calls((rank, warp, lane, 0))
            if level >= len(calls):
                raise NoValue("the lane has exited")
            for variable in self.variables(calls[level]):
                if variable.name == name:
                    return self._value(variable, calls[level], (rank, warp, lane, level))
            own = {"warp": warp, "lane": lane, "block": block}
            if name in own:
                return own[name]
            if not self.kernel.info.has_variables:
                raise NoValue(NO_VARIABLES)
            raise NoValue(f"there is no {name} here, or the compiler has optimised it away")

        return named

    def variables(self, instruction: int) -> list[Variable]:
        function, ptx_line, _, _ = self.kernel.rows[instruction]
        own = self.kernel.info.variables(function, ptx_line)
        names = {variable.name for variable in own}
        shared = [
            variable
            for variable in self.kernel.info.globals
            if variable.name not in names and self._shared_offset(variable) is not None
        ]
        return own + shared

    def _shared_offset(self, variable: Variable) -> int | None:
        place = variable.places[0][2] if variable.places else None
        return self._stepper.shared_offset(place.symbol) if place and place.symbol else None

    def _value(self, variable: Variable, instruction: int, call: Call) -> Any:
        place = variable.place_at(self.kernel.rows[instruction][1])
        if place is None and variable.places:
            raise NoValue(NOT_HERE)
        if place is None or place == Place():
            raise NoValue(OPTIMISED_AWAY)
        if place.constant is not None:
            return place.constant
        follow = self._follow(call)
        if place.register:
            data = self._register(call, place.register)
            return Value(variable.type, lambda offset, size: data[offset : offset + size], follow)
        shared = self._stepper.shared_offset(place.symbol)
        if shared is not None:
            base = _SHARED_WINDOW | self._stepper.shared_begin() + shared + place.offset
            return Value(variable.type, follow(base), follow, base=base)
        stored = self._stepper.local if place.symbol.startswith("__local_depot") else self._stepper.parameter
        return Value(
            variable.type,
            lambda offset, size: stored(call, place.symbol, place.offset + offset, size),
            follow,
        )

    def _register(self, call: Call, name: str) -> bytes:
        rank, warp, lane, level = call
        path = next((lanes for lanes, _, _ in self.paths(rank, warp) if lanes >> lane & 1), 0)
        key = (rank, warp, path, level, name)
        if key not in self._registers:
            self._registers[key] = self._stepper.register(call, name)
        if not self._registers[key]:
            raise NoValue(OPTIMISED_AWAY)
        return self._registers[key][lane].to_bytes(8, "little")

    def _follow(self, call: Call) -> Callable[[int], Callable[[int, int], bytes | None]]:
        return lambda address: lambda offset, size: self._memory(call, address + offset, size)

    def _memory(self, call: Call, address: int, size: int) -> bytes | None:
        """Bytes at a generic address; None: there are none."""
        if address >> 56 != _PARAMETER_WINDOW:
            return self._stepper.generic(call, address, size)
        begin = address & ADDRESS_MASK
        found = self._stepper.arguments()[begin : begin + size]
        return found if len(found) == size else None
