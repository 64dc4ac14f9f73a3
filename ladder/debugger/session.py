"""One debugging session: the process that runs the kernel, breakpoints, steps forward and back."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import IO, Any

from ladder.debugger.plan import Plan
from ladder.debugger.values import Expression, NoValue
from ladder.errors import ExecutionError
from ladder.run.emulator import Finding, parse_findings

#: After so many seconds of running, the state is kept before going on, so that going back is fast.
_KEEP_S = 0.3
_MOST_KEPT = 40
_GONE = "the process that was debugged has gone"
#: The steps, in the words of the stepper.
STEPS = ("into", "over", "out", "instruction", "barrier")


@dataclass
class Breakpoint:
    """A line at which warps stop, if ``condition`` is empty or true in one of their lanes."""

    number: int
    file: str
    line: int
    condition: str = ""
    is_of_function: bool = False


@dataclass
class Watch:
    """Memory whose change stops: of the block with this number, or global memory."""

    number: int
    text: str
    is_shared: bool
    block: int
    address: int
    bytes: int


@dataclass
class Stop:
    """Where and why the launch stopped; the data of :mod:`ladder.debugger.debuggee`. ``at`` is None at the
    beginning and the end of a launch.
    """

    why: str
    launch: Mapping[str, Any]
    number: int
    at: Mapping[str, Any] | None = None
    depth: int = 0
    hit: Sequence[int] = ()
    fault: str = ""
    watched: int = 0
    by: Mapping[str, Any] = field(default_factory=dict)
    has_variables: bool = True
    message: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the program is over."""
        return self.why == "exit"

    @property
    def moment(self) -> tuple[int, int]:
        """The launch, and the number of the instruction in it."""
        return int(self.launch.get("number", 0)), self.number


def _names_in(condition: str) -> list[str]:
    return Expression(condition).names if condition else []


def _stop(data: Mapping[str, Any]) -> Stop:
    return Stop(**{name: one for name, one in data.items() if name not in ("pid", "recorded")})


class Session:
    """Runs what ``target`` describes, see :mod:`ladder.debugger.targets`; stops before its first instruction.

    ``output`` gets what the program prints (default: stderr).
    """

    def __init__(
        self,
        target: Mapping[str, Any],
        *,
        descriptors: Sequence[int] = (),
        output: IO[bytes] | int | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "ladder.debugger.debuggee", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno(), *descriptors],
                stdin=subprocess.DEVNULL,
                stdout=output if output is not None else sys.stderr.fileno(),
                start_new_session=True,  # Ctrl-C is for this process
            )
        self._socket, self._channel = ours, ours.makefile("rwb")
        self._pid = self._process.pid
        self._kept: list[tuple[int, int]] = []  # the moments of the kept states
        self._ran_s = 0.0
        self.breakpoints: list[Breakpoint] = []
        self.watches: list[Watch] = []
        self._numbers = 0
        self.focus: tuple[int, int, int] = (0, 0, 0)
        self.level = 0
        try:
            self._send(target)
            self.stop = self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process, and those that keep earlier states."""
        with suppress(ConnectionError):  # an unread message
            self._channel.close()
        self._socket.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    # --- going on

    def _start(self) -> Stop:
        self._receive()
        self._send({})
        stop = self._read_stop()
        if stop.has_ended:
            raise ExecutionError("it has launched no kernel" + (f": {stop.message}" if stop.message else ""))
        self._keep(stop.moment)
        return self._go(Plan(step="into"))

    def go(self, step: str = "none") -> Stop:
        """Continues to the end of a step of the focused thread, or to whatever else stops it first."""
        self._require_running()
        if self._ran_s > _KEEP_S and len(self._kept) < _MOST_KEPT:
            self._keep(self.stop.moment)
        return self._go(self._plan(step=step))

    def go_to(self, moment: tuple[int, int]) -> Stop:
        """Goes to the instruction with this number of a launch, forward or back."""
        if self.stop.has_ended or moment <= self.stop.moment:
            self._rewind(moment)
        return self._go(Plan(until=moment, findings=False, focus=self.focus))

    def back(self, step: str = "over") -> Stop:
        """Goes to the last stop before this one that such a step, or with ``none`` a breakpoint, a watch or a
        finding, makes on the way here.
        """
        before = until = self.stop.moment
        plan = self._plan(step="into" if step == "over" else step, records=True)
        if step != "none":
            plan = replace(plan, breakpoints=(), watches=(), findings=False)
        if step == "over" and self.stop.at:
            plan = replace(plan, depth=self.stop.depth)
        while True:
            begin = self._rewind(before)
            if recorded := self._replay(replace(plan, until=until), begin):
                self._go(Plan(until=recorded.moment, findings=False, focus=self.focus))
                return self._arrive(recorded)
            if len(self._kept) == 1:  # there is nothing before the first line
                return self._go(Plan(step="into", findings=False))
            before, until = begin, (begin[0], begin[1] + 1)  # the kept state may be such a stop itself

    def interrupt(self) -> None:
        """Stops the launch before its next instruction."""
        os.kill(self._pid, signal.SIGINT)

    def _plan(self, step: str, *, records: bool = False) -> Plan:
        breakpoints = [(one.number, one.file, one.line, one.condition) for one in self.breakpoints]
        watches = [(one.is_shared, one.block, one.address, one.bytes) for one in self.watches]
        return Plan(step, self.focus, breakpoints, watches, records=records)

    def _go(self, plan: Plan) -> Stop:
        begin = time.monotonic()
        self._send({"request": "go", **asdict(plan)})
        self.stop = self._read_stop()
        self._ran_s += time.monotonic() - begin
        return self.stop

    def _replay(self, plan: Plan, begin: tuple[int, int]) -> Stop | None:
        """Runs from the kept state to the plan's end and returns to the state; the last stop on the way."""
        self._send({"request": "go", **asdict(plan)})
        answer = self._receive()
        if "why" not in answer:
            raise ExecutionError(
                "the program has ended earlier than the first time: it does not always do the same"
            )
        self._drop()
        self._keep(begin)
        return _stop(answer["recorded"]) if answer["recorded"] else None

    def _arrive(self, stop: Stop) -> Stop:
        self.stop, self.level = stop, 0
        if stop.at:
            self.focus = (stop.at["block_number"], stop.at["warp"], stop.at["lane"])
        return stop

    def _read_stop(self) -> Stop:
        while True:
            try:
                data = self._receive()
                break
            except KeyboardInterrupt:
                self.interrupt()
        if "exited" not in data and "woken" not in data:
            self._pid = data["pid"]
            return self._arrive(_stop(data))
        woken = data if "woken" in data else self._receive()
        code = woken["woken"]
        died = f"the program was ended by {signal.Signals(-code).name}" if code < 0 else ""
        message = data.get("message") or died or (f"the program has called exit({code})" if code else "")
        if self._kept:
            self._keep(self._kept.pop())
        launch, number = (self.stop.launch, self.stop.number) if hasattr(self, "stop") else ({}, 0)
        return Stop("exit", launch, number, message=message)

    def _require_running(self) -> None:
        if self.stop.has_ended:
            raise NoValue("the program has ended; back goes to the last stop before its end")

    # --- kept states

    def _keep(self, moment: tuple[int, int]) -> None:
        """Keeps the state that the stopped process is in, at this moment."""
        self._send({"request": "checkpoint"})
        self._receive()
        self._kept.append(moment)
        self._ran_s = 0.0

    def _drop(self) -> tuple[int, int]:
        """Ends the process that runs; the last one kept takes its place, at the moment that is returned."""
        self._send({"request": "leave"})
        self._receive()
        return self._kept.pop()

    def _rewind(self, before: tuple[int, int]) -> tuple[int, int]:
        """Returns to the last kept state before a moment, or to the first one, and keeps it."""
        moment = self._drop()
        while moment >= before and self._kept:
            moment = self._drop()
        self._keep(moment)
        return moment

    # --- breakpoints and watches

    def add_breakpoint(self, file: str, line: int, condition: str = "") -> Breakpoint:
        """Sets one at the first line with code from ``line`` on, of a file whose path ends so ("": the
        kernel's own). Raises :class:`NoValue` if there is none, or if the condition has no meaning there.
        """
        place = self.ask("breakable", file=file, line=line, names=_names_in(condition))
        return self._new_breakpoint(place, condition, False)

    def add_breakpoint_in(self, function: str, condition: str = "") -> Breakpoint:
        """Sets one at the first line of a function's body."""
        place = self.ask("function", name=function, names=_names_in(condition))
        return self._new_breakpoint(place, condition, True)

    def set_condition(self, number: int, condition: str) -> None:
        """Gives a breakpoint another condition, or none. Raises :class:`NoValue` if there is no such
        breakpoint, or if the condition has no meaning there.
        """
        for one in self.breakpoints:
            if one.number == number:
                self.ask("breakable", file=one.file, line=one.line, names=_names_in(condition))
                one.condition = condition
                return
        raise NoValue(f"there is no breakpoint {number}")

    def _new_breakpoint(self, place: Mapping[str, Any], condition: str, of_function: bool) -> Breakpoint:
        self._numbers += 1
        self.breakpoints.append(
            Breakpoint(self._numbers, place["file"], place["line"], condition, of_function)
        )
        return self.breakpoints[-1]

    def add_watch(self, text: str) -> Watch:
        """Watches the memory of an expression, such as ``s_row[3]``. Raises :class:`NoValue` if it has
        none.
        """
        found = self.ask("address", text=text, focus=self.focus, level=self.level)
        self._numbers += 1
        self.watches.append(Watch(self._numbers, text, **found))
        return self.watches[-1]

    def delete(self, number: int) -> None:
        """Deletes the breakpoint or watch with this number. Raises :class:`NoValue` if there is none."""
        before = len(self.breakpoints) + len(self.watches)
        self.breakpoints = [one for one in self.breakpoints if one.number != number]
        self.watches = [one for one in self.watches if one.number != number]
        if len(self.breakpoints) + len(self.watches) == before:
            raise NoValue(f"there is no breakpoint and no watch {number}")

    # --- looking

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:
        """The answer of the stopped process. Raises :class:`NoValue` if it has none."""
        self._require_running()
        self._send({"request": request, **arguments})
        answer = self._receive()
        if "error" in answer:
            raise NoValue(answer["error"])
        return answer

    def findings(self) -> list[Finding]:
        """What the sanitizer has found so far; nothing without ``check``."""
        return parse_findings(self.ask("findings")["findings"])[0]

    # --- the channel

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._channel.write(json.dumps(message).encode() + b"\n")
            self._channel.flush()
        except ConnectionError as error:
            raise ExecutionError(_GONE) from error

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._channel.readline()
        except ConnectionError as error:
            raise ExecutionError(_GONE) from error
        if not line:
            raise ExecutionError(_GONE)
        return dict(json.loads(line))
