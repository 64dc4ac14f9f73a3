"""The process that is debugged: it runs a rung or a program, and answers questions wherever it stops.

It is started by :mod:`ladder.debugger.session`, with which it talks in lines of JSON: a request, an answer. A
request ``checkpoint`` forks it. The new process goes on; the old one keeps what there was, and goes on from
there when the new one has ended. So going back is ending processes, and running forward to the step before.
"""

from __future__ import annotations

import ctypes
import difflib
import functools
import json
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ladder import _emulator, emulator
from ladder.backends import Lent, emulate
from ladder.debugger.debug_info import DebugInfo, Place, Variable
from ladder.debugger.values import MOST_ELEMENTS, Expression, NoValue, Value, pointer_text
from ladder.errors import LadderError

_SHARED_WINDOW, _ADDRESS_MASK = 1 << 56, (1 << 56) - 1
#: The highest byte of the address of a kernel's parameter.
_PARAMETER_WINDOW = 3
OPTIMISED_AWAY = "optimised away"
#: Elements of an array in a list of variables.
_MOST_SHOWN = 9
NOT_HERE = "not set yet, or optimised away here"
NO_VARIABLES = "this build has lines but no variables; leave out --lines-only"
#: What each thread has besides its variables.
_OWN_NAMES = {"threadIdx", "blockIdx", "blockDim", "gridDim", "warp", "lane", "block"}


@dataclass(frozen=True)
class Plan:
    """How to go on: with which step (see Stepper::Step) of which thread, and where to stop.

    ``breakpoints`` are [number, file, line, condition]; ``watches`` are [shared?, block, address, bytes];
    ``until`` is the launch and the number of an instruction. With ``records``, the stops before ``until`` are
    not reported but the last of them is, with at most ``depth`` calls if that is given.
    """

    step: str = "none"
    focus: tuple[int, int, int] = (0, 0, 0)
    breakpoints: Sequence[tuple[int, str, int, str]] = ()
    watches: Sequence[tuple[bool, int, int, int]] = ()
    findings: bool = True
    until: tuple[int, int] = (0, 0)
    records: bool = False
    depth: int | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Plan:
        """The plan that came by way of JSON, which has lists for tuples."""
        tuples: dict[str, Any] = {name: tuple(one) for name, one in data.items() if isinstance(one, list)}
        breakpoints: Any = [tuple(one) for one in data["breakpoints"]]
        return cls(**{**data, **tuples, "breakpoints": breakpoints})


@dataclass
class _Kernel:
    """The launch's instructions, and its variables."""

    rows: Sequence[tuple[str, int, str, Sequence[tuple[str, int, int, str]]]]
    info: DebugInfo
    #: By file and line: the first instructions.
    starts: Mapping[str, Mapping[int, Sequence[int]]] = field(default_factory=dict)
    #: By file: the lines with code, those of the module's other kernels, too.
    lines: Mapping[str, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.starts = first_instructions(self.rows)
        lines = {file: set(of_file) for file, of_file in self.starts.items()}
        for _, file, line in self.info.code:
            lines.setdefault(file, set()).add(line)
        self.lines = lines


def first_instructions(
    rows: Sequence[tuple[str, int, str, Sequence[tuple[str, int, int, str]]]],
) -> dict[str, dict[int, list[int]]]:
    """By file and line: the instructions at which a breakpoint on the line stops."""
    starts: dict[str, dict[int, list[int]]] = {}
    seen = set()
    before: tuple[Any, ...] = ()
    for number, (function, _, _, positions) in enumerate(rows):
        if not positions or not positions[0][1]:
            continue
        file, line = positions[0][:2]
        here = (function, file, line, *(place[1:3] for place in positions[1:]))
        if here != before and here not in seen:
            seen.add(here)
            starts.setdefault(file, {}).setdefault(line, []).append(number)
        before = here
    return starts


class Debuggee:
    """Runs under a stepper, and serves requests where it stops."""

    def __init__(self, channel: socket.socket) -> None:
        # A request is answered before the next one comes, so nothing is in the buffers when a process forks.
        self._channel = channel.makefile("rwb")
        self._stepper = _emulator.Stepper(self._stopped)
        self._plan = Plan()
        self._kernels: dict[str, _Kernel] = {}
        self._kernel: _Kernel | None = None
        self._launch: dict[str, Any] = {}
        self._why = ""
        self._hit: list[int] = []
        self._focus = (0, 0, 0, 0)  # rank of the block, warp, lane, its linear index
        self._recorded: dict[str, Any] | None = None
        self._has_started = False
        # What has been read at this stop.
        self._registers: dict[tuple[Any, ...], list[int]] = {}
        self._warps: list[Any] | None = None

    # --- the channel

    def send(self, **message: Any) -> None:
        try:
            self._channel.write(json.dumps(message).encode() + b"\n")
            self._channel.flush()
        except BrokenPipeError:  # the session has been closed
            os._exit(0)

    def receive(self) -> dict[str, Any]:
        line = self._channel.readline()
        if not line:
            os._exit(0)
        return dict(json.loads(line))

    def serve_starts(self, run: Callable[[], None]) -> None:
        """Forks for each start."""
        while True:
            self.receive()
            self._fork(lambda: self._run(run))

    def _fork(self, then: Callable[[], None]) -> None:
        """Calls ``then`` in a new process, and waits for its end in the old one."""
        if (pid := os.fork()) == 0:
            return then()
        _, status = os.waitpid(pid, 0)
        self.send(woken=os.waitstatus_to_exitcode(status))

    def _run(self, run: Callable[[], None]) -> None:
        signal.signal(signal.SIGINT, lambda *_: self._stepper.interrupt())
        self._stepper.attach()
        try:
            run()
            self.send(exited=0)
        except BaseException as error:  # whatever it was, the other side must know that this one has ended
            said = str(error) if isinstance(error, LadderError) else f"{type(error).__name__}: {error}"
            self.send(exited=1, message=said)
        sys.stdout.flush()
        os._exit(0)

    # --- stops

    def _stopped(self, why: str) -> None:
        self._registers.clear()
        self._warps = None
        self._why, self._hit = why, []
        if why == "launch":
            self._enter_launch()
            if self._has_started:
                return
            self._has_started = True
        here = self._stepper.here()
        number = (self._launch["number"], self._stepper.number())
        if here:
            block, rank, warp, path, lanes, _ = here
            at = self._plan.focus
            if (block, warp) != at[:2] or not path >> at[2] & 1:
                at = (block, warp, _first_lane(lanes or path))
            self._focus = (rank, warp, at[2], block)
        if why == "breakpoint" and not self._is_hit():
            return
        if self._plan.records and number < self._plan.until:
            is_stop = why not in ("end", "reached")
            if is_stop and (self._plan.depth is None or self._depth() <= self._plan.depth):
                self._recorded = self._stop_data()
            self._stepper.set_step(self._plan.step, *self._plan.focus)
            return
        self._serve()

    def _is_hit(self) -> bool:
        """Whether a breakpoint here has a condition that is true in a lane, which then is the focus."""
        rank, warp, first, block = self._focus
        _, _, _, _, lanes, at = self._stepper.here()
        assert self._kernel
        file, line = self._kernel.rows[at][3][0][:2]
        candidates = [first, *(lane for lane in range(32) if lane != first)]
        for number, own_file, own_line, condition in self._plan.breakpoints:
            if (own_file, own_line) != (file, line):
                continue
            for lane in candidates:
                if lanes >> lane & 1 and self._holds(condition, (rank, warp, lane, block)):
                    if not self._hit:
                        self._focus = (rank, warp, lane, block)
                    self._hit.append(number)
                    break
        return bool(self._hit)

    def _holds(self, condition: str, thread: tuple[int, int, int, int]) -> bool:
        if not condition:
            return True
        try:
            value = _expression(condition).value(self._names(thread, 0))
            return bool(value.number() if isinstance(value, Value) else value)
        except NoValue:
            return False

    def _enter_launch(self) -> None:
        self._launch = self._stepper.launch()
        mangled = self._launch["mangled"]
        if mangled not in self._kernels:
            self._kernels[mangled] = _Kernel(self._stepper.instructions(), DebugInfo(self._stepper.ptx()))
        self._kernel = self._kernels[mangled]
        self._apply()

    def _apply(self) -> None:
        """Hands the plan to the stepper."""
        assert self._kernel
        plan, stepper = self._plan, self._stepper
        launch = self._launch["number"]
        stepper.set_breakpoints([
            instruction
            for _, file, line, _ in plan.breakpoints
            for instruction in self._kernel.starts.get(file, {}).get(line, [])
        ])  # fmt: skip
        stepper.set_watches([tuple(watch) for watch in plan.watches])
        stepper.set_stops_at_findings(plan.findings)
        stepper.set_target(plan.until[1] if plan.until[0] == launch else 0)
        stepper.set_step(plan.step, *plan.focus)

    def _serve(self) -> None:
        """Answers requests until one goes on."""
        self.send(**self._stop_data(), recorded=self._recorded)
        self._recorded = None
        while True:
            request = self.receive()
            name = request.pop("request")
            if name == "go":
                self._plan = Plan.of(request)
                return self._apply()
            if name == "leave":
                os._exit(0)
            if name == "checkpoint":
                self._fork(lambda: self.send())
                continue
            try:
                self.send(**getattr(self, f"_answer_{name}")(**request))
            except NoValue as error:
                self.send(error=str(error))

    def _stop_data(self) -> dict[str, Any]:
        launch = self._launch
        data: dict[str, Any] = {
            "why": self._why,
            "launch": launch,
            "number": self._stepper.number(),
            "hit": self._hit,
            "pid": os.getpid(),
            "has_variables": bool(self._kernel and self._kernel.info.has_variables),
        }
        if self._stepper.here():
            data["at"] = self._position(self._focus)
            data["depth"] = self._depth()
        if self._why == "fault":
            data["fault"] = self._stepper.fault()
        if self._why == "watch":
            block, warp, instruction = self._stepper.last()
            data["watched"] = self._stepper.watched()
            data["by"] = {"block": self._index(block), "warp": warp, **self._place(instruction)}
        return data

    # --- places

    def _index(self, block: int) -> list[int]:
        """A block's index from its number."""
        x, y, _ = self._launch["grid"]
        return [block % x, block // x % y, block // x // y]

    def _place(self, instruction: int) -> dict[str, Any]:
        assert self._kernel
        function, _, ptx, positions = self._kernel.rows[instruction]
        file, line = positions[0][:2] if positions else ("", 0)
        name = self._kernel.info.function_name(function)
        return {"instruction": instruction, "file": file, "line": line, "function": name, "ptx": ptx}

    def _position(self, thread: tuple[int, int, int, int]) -> dict[str, Any]:
        rank, warp, lane, block = thread
        calls = self._stepper.calls((rank, warp, lane, 0))
        lanes = next((lanes for lanes, _, _ in self._paths(rank, warp) if lanes >> lane & 1), 0)
        return {
            "block": self._index(block),
            "block_number": block,
            "rank": rank,
            "warp": warp,
            "lane": lane,
            "thread": self._thread(warp, lane),
            "lanes": lanes,
            **(self._place(calls[0]) if calls else {}),
        }

    def _thread(self, warp: int, lane: int) -> list[int]:
        x, y, _ = self._launch["block"]
        number = 32 * warp + lane
        return [number % x, number // x % y, number // x // y]

    def _paths(self, rank: int, warp: int) -> list[tuple[int, int, str]]:
        """The lanes of a warp that are together: lanes, instruction, state."""
        if self._warps is None:
            self._warps = self._stepper.warps()
        found = [paths for _, r, w, paths in self._warps if (r, w) == (rank, warp)]
        return list(found[0]) if found else []

    def _depth(self) -> int:
        rank, warp, lane, _ = self._focus
        return len(self._stepper.calls((rank, warp, lane, 0)))

    def _chosen(self, focus: Sequence[int] | None) -> tuple[int, int, int, int]:
        """The thread with this block, warp and lane, of the blocks that run."""
        if focus is None:
            return self._focus
        if not self._stepper.here():
            raise NoValue("no block runs at the end of a launch; back goes to where one does")
        for block, rank, warp, _ in self._stepper.warps():
            if (block, warp) == (focus[0], focus[1]):
                return (rank, warp, focus[2], block)
        raise NoValue(f"block {focus[0]} has no warp {focus[1]}, or does not run now")

    # --- names

    def _names(self, thread: tuple[int, int, int, int], level: int) -> Callable[[str], Any]:
        """What a name means to a lane: a variable, or one of CUDA's."""
        rank, warp, lane, block = thread
        launch = self._launch

        def named(name: str) -> Any:
            triples = {
                "threadIdx": lambda: self._thread(warp, lane),
                "blockIdx": lambda: self._index(block),
                "blockDim": lambda: launch["block"],
                "gridDim": lambda: launch["grid"],
            }
            if name in triples:
                return dict(zip("xyz", triples[name](), strict=True))
            calls = self._stepper.calls((rank, warp, lane, 0))
            if level >= len(calls):
                raise NoValue("the lane has exited")
            for variable in self._variables(calls[level]):
                if variable.name == name:
                    return self._value(variable, calls[level], (rank, warp, lane, level))
            own = {"warp": warp, "lane": lane, "block": block}
            if name in own:
                return own[name]
            assert self._kernel
            if not self._kernel.info.has_variables:
                raise NoValue(NO_VARIABLES)
            raise NoValue(f"there is no {name} here, or the compiler has optimised it away")

        return named

    def _variables(self, instruction: int) -> list[Variable]:
        assert self._kernel
        function, ptx_line, _, _ = self._kernel.rows[instruction]
        own = self._kernel.info.variables(function, ptx_line)
        names = {variable.name for variable in own}
        shared = [
            variable
            for variable in self._kernel.info.globals
            if variable.name not in names and self._shared_offset(variable) is not None
        ]
        return own + shared

    def _shared_offset(self, variable: Variable) -> int | None:
        place = variable.places[0][2] if variable.places else None
        return self._stepper.shared_offset(place.symbol) if place and place.symbol else None

    def _value(self, variable: Variable, instruction: int, call: tuple[int, int, int, int]) -> Any:
        assert self._kernel
        place = variable.place_at(self._kernel.rows[instruction][1])
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

    def _register(self, call: tuple[int, int, int, int], name: str) -> bytes:
        rank, warp, lane, level = call
        path = next((lanes for lanes, _, _ in self._paths(rank, warp) if lanes >> lane & 1), 0)
        key = (rank, warp, path, level, name)
        if key not in self._registers:
            self._registers[key] = self._stepper.register(call, name)
        if not self._registers[key]:
            raise NoValue(OPTIMISED_AWAY)
        return self._registers[key][lane].to_bytes(8, "little")

    def _follow(self, call: tuple[int, int, int, int]) -> Callable[[int], Callable[[int, int], bytes | None]]:
        return lambda address: lambda offset, size: self._memory(call, address + offset, size)

    def _memory(self, call: tuple[int, int, int, int], address: int, size: int) -> bytes | None:
        """Bytes at a generic address; None: there are none."""
        if address >> 56 != _PARAMETER_WINDOW:
            return self._stepper.generic(call, address, size)
        begin = address & _ADDRESS_MASK
        found = self._stepper.arguments()[begin : begin + size]
        return found if len(found) == size else None

    # --- answers

    def _answer_breakable(self, file: str, line: int, names: Sequence[str] = ()) -> dict[str, Any]:
        """The first line with code from this one on, in a file whose path ends so; "" is the kernel's own.
        A condition of a breakpoint there has ``names``.
        """
        assert self._kernel
        own = self._kernel.rows[0][3]
        paths = [path for path in self._kernel.lines if _is_path(path, file or (own[-1][0] if own else ""))]
        found = [(later, path) for path in paths for later in self._kernel.lines[path] if later >= line]
        if not paths:
            files = sorted({os.path.basename(path) for path in self._kernel.lines})
            raise NoValue(f"the kernel has no code from {file}; it has code from {', '.join(files)}")
        if not found:
            raise NoValue(f"{os.path.basename(paths[0])} has no code at line {line} or behind it")
        later, path = min(found)
        self._require_names(path, later, names)
        return {"file": path, "line": later}

    def _answer_function(self, name: str, names: Sequence[str] = ()) -> dict[str, Any]:
        """The first line of a function behind its head."""
        assert self._kernel
        info = self._kernel.info
        code: dict[str, list[tuple[str, int]]] = {}
        for function, _, _, positions in self._kernel.rows:
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
        assert self._kernel
        starts = self._kernel.starts.get(file, {}).get(line, ())
        known = {one.name for at in starts for one in self._variables(at) if one.is_somewhere}
        unknown = next((name for name in names if name not in known | _OWN_NAMES), None)
        if unknown is None or not starts:
            return
        if not self._kernel.info.has_variables:
            raise NoValue(NO_VARIABLES)
        near = difflib.get_close_matches(unknown, known, 1)
        raise NoValue(
            f"there is no {unknown} at {os.path.basename(file)}:{line}, or the compiler has optimised it away"
            + (f"; did you mean {near[0]}?" if near else "")
        )

    def _answer_position(self, focus: Sequence[int] | None = None) -> dict[str, Any]:
        return self._position(self._chosen(focus))

    def _answer_stack(self, focus: Sequence[int] | None = None) -> dict[str, Any]:
        """The calls, the innermost first, with those of functions that were inlined."""
        assert self._kernel
        rank, warp, lane, _ = self._chosen(focus)
        frames = []
        for level, instruction in enumerate(self._stepper.calls((rank, warp, lane, 0))):
            function, _, _, positions = self._kernel.rows[instruction]
            name = self._kernel.info.function_name(function)
            for number, (file, line, _, inlined) in enumerate(positions or [("", 0, 0, "")]):
                is_inlined = number + 1 < len(positions)
                frames.append({
                    "function": (inlined or "?") if is_inlined else name,
                    "file": file, "line": line, "level": level, "inlined": is_inlined,
                })  # fmt: skip
        return {"frames": frames}

    def _answer_warps(self) -> dict[str, Any]:
        """The warps of the blocks that run, with their lanes by place."""
        return {
            "warps": [
                {
                    "block": self._index(block), "block_number": block, "warp": warp,
                    "paths": [
                        {"lanes": lanes, "state": state, **self._place(at)} for lanes, at, state in paths
                    ],
                }
                for block, _, warp, paths in self._stepper.warps()
            ]
        }  # fmt: skip

    def _answer_variables(self, focus: Sequence[int] | None = None, level: int = 0) -> dict[str, Any]:
        """The variables in scope, each with its value by lane."""
        rank, warp, lane, block = self._chosen(focus)
        calls = self._stepper.calls((rank, warp, lane, 0))
        if level >= len(calls):
            raise NoValue("the lane has exited")
        return {
            "variables": [
                {
                    "name": variable.name,
                    **self._by_lane(Expression(variable.name), rank, warp, block, level, _MOST_SHOWN),
                }
                for variable in reversed(self._variables(calls[level]))
                if variable.name.isidentifier()
            ],
            "has_variables": bool(self._kernel and self._kernel.info.has_variables),
        }

    def _answer_evaluate(
        self, text: str, focus: Sequence[int] | None = None, level: int = 0
    ) -> dict[str, Any]:
        rank, warp, lane, block = self._chosen(focus)
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
        for lanes, _, _ in self._paths(rank, warp):
            live |= lanes
        for lane in _lanes(live):
            try:
                value = expression.value(self._names((rank, warp, lane, block), level))
                if isinstance(value, Value):
                    kind = type_text(value)
                    value = value.plain(most)
                values[lane] = value
            except NoValue as error:
                reasons[str(lane)] = str(error)
        return {"values": values, "type": kind, "reasons": reasons}

    def _answer_address(
        self, text: str, focus: Sequence[int] | None = None, level: int = 0
    ) -> dict[str, Any]:
        """Where an expression of one lane lies: in shared memory (offset) or in global memory (address)."""
        rank, warp, lane, block = self._chosen(focus)
        value = Expression(text).value(self._names((rank, warp, lane, block), level))
        if not isinstance(value, Value):
            raise NoValue(f"{text} is a number, which is nowhere")
        if value.base is None:
            raise NoValue(f"{text} is in a register or in local memory, not in shared or global memory")
        if value.address >> 56 > 1:
            raise NoValue(f"{text} is at {pointer_text(value.address)}, not in shared or global memory")
        address, space = value.address, value.address >> 56
        value.raw()  # raises if it cannot be read
        is_shared = space == 1
        at = (address & _ADDRESS_MASK) - self._stepper.shared_begin() if is_shared else address
        return {"is_shared": is_shared, "block": block, "address": at, "bytes": value.type.bytes}

    def _answer_shared(self, focus: Sequence[int] | None = None) -> dict[str, Any]:
        return {"hex": self._stepper.shared(self._chosen(focus)[0]).hex()}

    def _answer_mbarriers(self, focus: Sequence[int] | None = None) -> dict[str, Any]:
        return {"mbarriers": self._stepper.mbarriers(self._chosen(focus)[0])}

    def _answer_instructions(self, begin: int, end: int) -> dict[str, Any]:
        assert self._kernel
        end = min(end, len(self._kernel.rows))
        return {"instructions": [self._place(at) for at in range(max(begin, 0), end)]}

    def _answer_findings(self) -> dict[str, Any]:
        return {"findings": self._stepper.findings()}


@functools.cache
def _expression(text: str) -> Expression:
    return Expression(text)


def type_text(value: Value) -> str:
    kind = value.type
    return f"{kind.target.name} *" if kind.kind == "pointer" and kind.target else kind.name


def _first_lane(lanes: int) -> int:
    return (lanes & -lanes).bit_length() - 1 if lanes else 0


def _lanes(mask: int) -> Iterator[int]:
    return (lane for lane in range(32) if mask >> lane & 1)


def _is_path(path: str, end: str) -> bool:
    return path == end or path.endswith("/" + end)


def _run_stage(data: Mapping[str, Any]) -> None:
    memory = mmap.mmap(data["arena"], 0, access=mmap.ACCESS_COPY)  # so that a fork keeps what there was
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    lent = [
        Lent(name, base + begin if begin >= 0 else 0, size, writable)
        for name, begin, size, writable in data["lent"]
    ]
    result = emulate(data["extension"], lent, data["arguments"], data["session"])
    if result.failure:
        raise result.failure


def _run_program(data: Mapping[str, Any]) -> None:
    with emulator.session(**data["session"]):
        library = ctypes.CDLL(data["program"])
        words = [os.fsencode(word) for word in [data["program"], *data["words"]]]
        code = library.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))
        ctypes.CDLL(None).fflush(None)
    if code:
        raise LadderError(f"the program has returned {code}")


def main() -> None:
    """Serves on the socket whose descriptor is the command line's word; its first line is what to run."""
    debuggee = Debuggee(socket.socket(fileno=int(sys.argv[1])))
    data = debuggee.receive()
    run = _run_stage if "extension" in data else _run_program
    debuggee.send()
    debuggee.serve_starts(lambda: run(data))


if __name__ == "__main__":
    main()
