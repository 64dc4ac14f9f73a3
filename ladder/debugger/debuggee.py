"""The process that is debugged: it runs a rung or a program, and answers questions wherever it stops.

It is started by :mod:`ladder.debugger.session`, with which it talks in lines of JSON: a request, an answer. A
request ``checkpoint`` forks it. The new process goes on; the old one keeps what there was, and goes on from
there when the new one has ended. So going back is ending processes, and running forward to the step before.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ladder import _emulator
from ladder.debugger.answers import Answers
from ladder.debugger.plan import Plan
from ladder.debugger.stopped import Stopped, Thread
from ladder.debugger.values import Expression, NoValue, Value
from ladder.errors import LadderError
from ladder.run import emulator
from ladder.run.backends import Lent, emulate


class Debuggee:
    """Runs under a stepper, and serves requests where it stops."""

    def __init__(self, channel: socket.socket) -> None:
        # A request is answered before the next one comes, so nothing is in the buffers when a process forks.
        self._channel = channel.makefile("rwb")
        self._stepper = _emulator.Stepper(self._stop)
        self._at = Stopped(self._stepper)
        self._answers = Answers(self._stepper, self._at)
        self._plan = Plan()
        self._why = ""
        self._hit: list[int] = []
        self._recorded: dict[str, Any] | None = None
        self._has_started = False

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

    def _stop(self, why: str) -> None:
        self._at.forget_reads()
        self._why, self._hit = why, []
        if why == "launch":
            self._at.enter_launch()
            self._apply()
            if self._has_started:
                return
            self._has_started = True
        here = self._stepper.here()
        number = (self._at.launch["number"], self._stepper.number())
        if here:
            block, rank, warp, path, lanes, _ = here
            at = self._plan.focus
            if (block, warp) != at[:2] or not path >> at[2] & 1:
                at = (block, warp, _first_lane(lanes or path))
            self._at.focus = (rank, warp, at[2], block)
        if why == "breakpoint" and not self._is_hit():
            return
        if self._plan.records and number < self._plan.until:
            is_stop = why not in ("end", "reached")
            if is_stop and (self._plan.depth is None or self._at.depth() <= self._plan.depth):
                self._recorded = self._stop_data()
            self._stepper.set_step(self._plan.step, *self._plan.focus)
            return
        self._serve()

    def _is_hit(self) -> bool:
        """Whether a breakpoint here has a condition that is true in a lane, which then is the focus."""
        rank, warp, first, block = self._at.focus
        _, _, _, _, lanes, at = self._stepper.here()
        file, line = self._at.kernel.rows[at][3][0][:2]
        candidates = [first, *(lane for lane in range(32) if lane != first)]
        for number, own_file, own_line, condition in self._plan.breakpoints:
            if (own_file, own_line) != (file, line):
                continue
            for lane in candidates:
                if lanes >> lane & 1 and self._holds(condition, (rank, warp, lane, block)):
                    if not self._hit:
                        self._at.focus = (rank, warp, lane, block)
                    self._hit.append(number)
                    break
        return bool(self._hit)

    def _holds(self, condition: str, thread: Thread) -> bool:
        if not condition:
            return True
        try:
            value = _expression(condition).value(self._at.names(thread, 0))
            return bool(value.number() if isinstance(value, Value) else value)
        except NoValue:
            return False

    def _apply(self) -> None:
        """Hands the plan to the stepper."""
        plan, stepper = self._plan, self._stepper
        launch = self._at.launch["number"]
        stepper.set_breakpoints([
            instruction
            for _, file, line, _ in plan.breakpoints
            for instruction in self._at.kernel.starts.get(file, {}).get(line, [])
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
                self.send(**getattr(self._answers, name)(**request))
            except NoValue as error:
                self.send(error=str(error))

    def _stop_data(self) -> dict[str, Any]:
        launch = self._at.launch
        data: dict[str, Any] = {
            "why": self._why,
            "launch": launch,
            "number": self._stepper.number(),
            "hit": self._hit,
            "pid": os.getpid(),
            "has_variables": self._at.kernel.info.has_variables,
        }
        if self._stepper.here():
            data["at"] = self._at.position(self._at.focus)
            data["depth"] = self._at.depth()
        if self._why == "fault":
            data["fault"] = self._stepper.fault()
        if self._why == "watch":
            block, warp, instruction = self._stepper.last()
            data["watched"] = self._stepper.watched()
            data["by"] = {"block": self._at.index(block), "warp": warp, **self._at.place(instruction)}
        return data


@functools.cache
def _expression(text: str) -> Expression:
    return Expression(text)


def _first_lane(lanes: int) -> int:
    return (lanes & -lanes).bit_length() - 1 if lanes else 0


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
