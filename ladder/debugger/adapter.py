"""The debugger for editors: the Debug Adapter Protocol on two streams.

Warps are threads; the scopes of a frame are one lane, all lanes, and shared memory's mbarriers. The request
``lanes``, which the protocol lacks, returns the table of variables by lane.
https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import IO, Any

from ladder.debugger.session import Session, Stop
from ladder.debugger.tables import UNOPTIMISED, text_of
from ladder.debugger.values import NoValue
from ladder.errors import LadderError

#: Thread ids are a block's number times this, plus the warp, plus 1.
_WARPS = 64
_CAPABILITIES = (
    *("supportsConfigurationDoneRequest", "supportsConditionalBreakpoints", "supportsFunctionBreakpoints"),
    *("supportsStepBack", "supportsEvaluateForHovers", "supportsSteppingGranularity"),
    *("supportsDataBreakpoints", "supportTerminateDebuggee"),
)
_STEPS = {"next": "over", "stepIn": "into", "stepOut": "out", "stepBack": "over"}
_REASONS = {
    "breakpoint": "breakpoint",
    "watch": "data breakpoint",
    "fault": "exception",
    "finding": "exception",
}

#: Opens the session that the arguments of the request ``launch`` describe; what it prints goes to the file.
Open = Callable[[Mapping[str, Any], IO[bytes]], Session]


class _Object(dict[str, Any]):
    """An object of the client's. Raises :class:`NoValue` for a member that it should have."""

    def __missing__(self, name: str) -> Any:
        raise NoValue(f"the request has no {name}")


class Adapter:
    """Serves one client until it disconnects."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes], open_session: Open) -> None:
        self._reads, self._writes, self._open = reads, writes, open_session
        self._session: Session | None = None
        self._requests: queue.Queue[_Object | LadderError | None] = queue.Queue()
        self._lock = threading.Lock()
        self._sent = 0
        self._is_running = False
        self._stops_on_entry = True
        #: What the numbers of frames and of values mean until the next stop. No number is given twice.
        self._frames: dict[int, tuple[tuple[int, int, int], int]] = {}
        self._values: dict[int, Callable[[], list[dict[str, Any]]]] = {}
        self._numbers = itertools.count(1)

    def serve(self) -> None:
        """Answers requests until the client disconnects. Raises :class:`LadderError` if what it sends is not
        the protocol's.
        """
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            while (request := self._requests.get()) is not None:
                if isinstance(request, LadderError):
                    raise request
                if not self._answer(request):
                    return
        finally:
            if self._session:
                self._session.close()

    # --- messages

    def _listen(self) -> None:
        try:
            while (request := self._next_request()) is not None:
                if request["command"] == "pause" and self._session and self._is_running:
                    self._session.interrupt()
                self._requests.put(request)
            self._requests.put(None)
        except (LadderError, ValueError) as error:
            wrong = LadderError(
                f"no request of the Debug Adapter Protocol: {error}",
                "--dap is for editors; without it, the debugger has a prompt.",
            )
            self._requests.put(wrong)

    def _next_request(self) -> _Object | None:
        if (length := self._length()) is None:
            return None
        request = json.loads(self._reads.read(length), object_hook=_Object)
        if not isinstance(request, _Object):
            raise ValueError(f"{request!r} is no object")
        return request

    def _length(self) -> int | None:
        """The length of the next message, from its head; None at the end."""
        length = None
        while line := self._reads.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return length

    def _send(self, **message: Any) -> None:
        with self._lock:
            self._sent += 1
            data = json.dumps({"seq": self._sent, **message}).encode()
            self._writes.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
            self._writes.flush()

    def _event(self, name: str, **body: Any) -> None:
        self._send(type="event", event=name, body=body)

    def _answer(self, request: Mapping[str, Any]) -> bool:
        """Answers one request; False if it was the last."""
        command, arguments = request["command"], request.get("arguments") or _Object()
        head = {"type": "response", "request_seq": request["seq"], "command": command}
        handler = getattr(self, f"_on_{command}", None)
        after: Callable[[], None] | None = None
        try:
            if handler is None:
                raise NoValue(f"{command} is not supported")
            body = handler(arguments)
            if callable(body):  # what happens behind the answer
                body, after = None, body
            self._send(**head, success=True, body=body or {})
        except LadderError as error:
            text = f"{error.message}. {error.hint}" if error.hint else error.message
            self._send(**head, success=False, message=text, body={"error": {"id": 1, "format": text}})
            if command == "launch" and self._session is None:
                self._event("terminated")
        if after:
            after()
        return command not in ("disconnect", "terminate")

    @property
    def _debugged(self) -> Session:
        if self._session is None:
            raise NoValue("nothing has been launched")
        return self._session

    # --- the beginning and the end

    def _on_initialize(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict.fromkeys(_CAPABILITIES, True)

    def _on_launch(self, arguments: Mapping[str, Any]) -> Callable[[], None]:
        if self._session:
            raise NoValue("a program is being debugged already; disconnect first")
        reads, writes = os.pipe()
        threading.Thread(target=self._forward, args=(reads,), daemon=True).start()  # it closes this end
        with open(writes, "wb") as output:
            self._session = self._open(arguments, output)
        self._stops_on_entry = bool(arguments.get("stopOnEntry", True))
        return lambda: self._event("initialized")

    def _forward(self, reads: int) -> None:
        """Sends what the program prints."""
        with open(reads, "rb") as printed, suppress(OSError, ValueError):
            while data := printed.read1(1 << 16):
                self._event("output", category="stdout", output=data.decode(errors="replace"))

    def _on_configurationDone(self, arguments: Mapping[str, Any]) -> Callable[[], None]:
        if self._debugged.stop.has_variables:
            self._event("output", category="console", output=UNOPTIMISED + "\n")
        if self._stops_on_entry:
            return lambda: self._say_stop(self._debugged.stop, "entry")
        return self._continued(lambda: self._debugged.go())

    def _on_disconnect(self, arguments: Mapping[str, Any]) -> None:
        return None

    _on_terminate = _on_disconnect

    # --- breakpoints

    def _on_setBreakpoints(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        session, path = self._debugged, os.path.realpath(arguments["source"].get("path", ""))
        session.breakpoints = [
            one for one in session.breakpoints if one.is_of_function or os.path.realpath(one.file) != path
        ]
        made: list[dict[str, Any]] = []
        for wanted in arguments.get("breakpoints", []):
            try:
                one = session.add_breakpoint(path, wanted["line"], wanted.get("condition", ""))
                moved = f"line {wanted['line']} has no code" if one.line != wanted["line"] else ""
                made.append({"id": one.number, "verified": True, "line": one.line, "message": moved})
            except NoValue as error:
                made.append({"verified": False, "line": wanted["line"], "message": error.message})
        return {"breakpoints": made}

    def _on_setFunctionBreakpoints(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        session = self._debugged
        session.breakpoints = [one for one in session.breakpoints if not one.is_of_function]
        made: list[dict[str, Any]] = []
        for wanted in arguments["breakpoints"]:
            try:
                one = session.add_breakpoint_in(wanted["name"], wanted.get("condition", ""))
                made.append({"id": one.number, "verified": True, "line": one.line})
            except NoValue as error:
                made.append({"verified": False, "message": error.message})
        return {"breakpoints": made}

    def _on_dataBreakpointInfo(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        text = arguments["name"]
        try:
            self._debugged.ask("address", text=text, focus=self._debugged.focus, level=self._debugged.level)
        except NoValue as error:
            return {"dataId": None, "description": error.message}
        return {"dataId": text, "description": text, "accessTypes": ["write"]}

    def _on_setDataBreakpoints(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        session = self._debugged
        session.watches = []
        made: list[dict[str, Any]] = []
        for wanted in arguments["breakpoints"]:
            try:
                made.append({"id": session.add_watch(wanted["dataId"]).number, "verified": True})
            except NoValue as error:
                made.append({"verified": False, "message": error.message})
        return {"breakpoints": made}

    # --- going on

    def _continued(self, go: Callable[[], Stop]) -> Callable[[], None]:
        def run() -> None:
            self._is_running = True
            try:
                stop = go()
            except NoValue as error:
                self._event("output", category="console", output=error.message + "\n")
                stop = self._debugged.stop
            except LadderError as error:
                self._event("output", category="stderr", output=error.message + "\n")
                self._event("terminated")
                return
            finally:
                self._is_running = False
            self._say_stop(stop)

        return run

    def _say_stop(self, stop: Stop, reason: str = "") -> None:
        self._frames.clear()
        self._values.clear()
        session = self._debugged
        if stop.has_ended:
            if stop.message:
                self._event("output", category="stderr", output=stop.message + "\n")
            self._event("terminated")
            return
        text = stop.fault
        if stop.why == "finding" and (found := session.findings()):
            text = f"{found[-1].kind}: {found[-1].message}"
        if stop.why == "end":
            text = "the launch has ended"
        if text:
            self._event("output", category="console", output=text + "\n")
        self._event(
            "stopped",
            reason=reason or _REASONS.get(stop.why, "pause" if stop.why == "interrupted" else "step"),
            threadId=_thread(session.focus[0], session.focus[1]),
            allThreadsStopped=True,
            text=text,
            hitBreakpointIds=list(stop.hit),
        )

    def _focus(self, arguments: Mapping[str, Any]) -> tuple[int, int, int]:
        """The thread of the client: of its warp the lane in focus, or the first that has not exited."""
        session = self._debugged
        number = arguments["threadId"] - 1
        focus = (number // _WARPS, number % _WARPS)
        if focus == session.focus[:2]:
            return session.focus
        for warp in session.ask("warps")["warps"]:
            if (warp["block_number"], warp["warp"]) == focus and warp["paths"]:
                lanes = warp["paths"][0]["lanes"]
                return (*focus, (lanes & -lanes).bit_length() - 1)
        return (*focus, 0)

    def _on_continue(self, arguments: Mapping[str, Any]) -> Callable[[], None]:
        return self._continued(self._debugged.go)

    def _step(self, command: str, arguments: Mapping[str, Any]) -> Callable[[], None]:
        session = self._debugged
        step = "instruction" if arguments.get("granularity") == "instruction" else _STEPS[command]
        session.focus = self._focus(arguments)
        go = session.back if command == "stepBack" else session.go
        return self._continued(lambda: go(step))

    def _on_next(self, arguments: Mapping[str, Any]) -> Callable[[], None]:
        return self._step("next", arguments)

    def _on_stepIn(self, arguments: Mapping[str, Any]) -> Callable[[], None]:
        return self._step("stepIn", arguments)

    def _on_stepOut(self, arguments: Mapping[str, Any]) -> Callable[[], None]:
        return self._step("stepOut", arguments)

    def _on_stepBack(self, arguments: Mapping[str, Any]) -> Callable[[], None]:
        return self._step("stepBack", arguments)

    def _on_reverseContinue(self, arguments: Mapping[str, Any]) -> Callable[[], None]:
        return self._continued(lambda: self._debugged.back("none"))

    def _on_pause(self, arguments: Mapping[str, Any]) -> None:
        return None  # _listen has passed it on

    # --- looking

    def _on_threads(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        threads = []
        if self._session and self._session.stop.at:
            for warp in self._session.ask("warps")["warps"]:
                if warp["paths"]:
                    block = ",".join(map(str, warp["block"]))
                    number = _thread(warp["block_number"], warp["warp"])
                    threads.append({"id": number, "name": f"block ({block}) warp {warp['warp']}"})
        return {"threads": threads or [{"id": 1, "name": "no warp runs"}]}

    def _on_stackTrace(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if not self._debugged.stop.at:
            return {"stackFrames": [], "totalFrames": 0}
        focus = self._focus(arguments)
        frames = []
        for frame in self._debugged.ask("stack", focus=focus)["frames"]:
            number = next(self._numbers)
            self._frames[number] = (focus, frame["level"])
            source = {"name": os.path.basename(frame["file"]), "path": frame["file"]}
            frames.append({
                "id": number, "name": frame["function"], "line": frame["line"], "column": 1,
                **({"source": source} if frame["file"] else {}),
            })  # fmt: skip
        return {"stackFrames": frames, "totalFrames": len(frames)}

    def _frame(self, number: int) -> tuple[tuple[int, int, int], int]:
        if number not in self._frames:
            raise NoValue("that frame is one of an earlier stop")
        return self._frames[number]

    def _on_scopes(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        focus, level = self._frame(arguments["frameId"])
        self._debugged.level = level
        scopes = [
            (f"Lane {focus[2]}", lambda: self._lane_variables(focus, level), False),
            ("All lanes", lambda: self._by_lane(focus, level), False),
            ("mbarriers", lambda: self._mbarriers(focus), True),
        ]
        return {
            "scopes": [
                {"name": name, "variablesReference": self._new(values), "expensive": is_expensive}
                for name, values, is_expensive in scopes
            ]
        }

    def _new(self, values: Callable[[], list[dict[str, Any]]]) -> int:
        number = next(self._numbers)
        self._values[number] = values
        return number

    def _on_variables(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        values = self._values.get(arguments["variablesReference"])
        if values is None:
            raise NoValue("those values are of an earlier stop")
        return {"variables": values()}

    def _all(self, focus: tuple[int, int, int], level: int) -> list[dict[str, Any]]:
        return list(self._debugged.ask("variables", focus=focus, level=level)["variables"])

    def _lane_variables(self, focus: tuple[int, int, int], level: int) -> list[dict[str, Any]]:
        lane = focus[2]
        return [
            self._shown(one["name"], one["values"][lane], one["name"], focus, level, one["type"])
            if one["values"][lane] is not None
            else {"name": one["name"], "value": _reason(one, lane), "variablesReference": 0}
            for one in self._all(focus, level)
        ]

    def _shown(
        self, name: str, value: Any, text: str, focus: tuple[int, int, int], level: int, kind: str = ""
    ) -> dict[str, Any]:
        """A value; its parts are evaluated when the client opens it."""

        def parts() -> list[dict[str, Any]]:
            whole = self._debugged.ask("evaluate", text=text, focus=focus, level=level)["values"][focus[2]]
            items = whole.items() if isinstance(whole, dict) else enumerate(whole)
            return [
                self._shown(
                    str(key),
                    one,
                    f"{text}.{key}" if isinstance(whole, dict) else f"{text}[{key}]",
                    focus,
                    level,
                )
                for key, one in items
            ]

        reference = self._new(parts) if isinstance(value, dict | list) else 0
        shown = {"name": name, "value": text_of(value), "variablesReference": reference, "evaluateName": text}
        return {**shown, "type": kind} if kind else shown

    def _by_lane(self, focus: tuple[int, int, int], level: int) -> list[dict[str, Any]]:
        found = []
        for one in self._all(focus, level):
            shown = [text_of(value) for value in one["values"] if value is not None]
            same = shown[0] if shown and len(set(shown)) == 1 else ""
            found.append({
                "name": one["name"],
                "value": same or (", ".join(shown[:8]) + ", ..." if shown else _reason(one, focus[2])),
                "type": one["type"],
                "variablesReference": 0 if same or not shown else self._new(partial(_lanes_of, one)),
            })  # fmt: skip
        return found

    def _mbarriers(self, focus: tuple[int, int, int]) -> list[dict[str, Any]]:
        found = self._debugged.ask("mbarriers", focus=focus)["mbarriers"]
        return [{"name": f"byte {at}", "value": text, "variablesReference": 0} for at, text in found]

    def _on_evaluate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        session, text = self._debugged, arguments["expression"]
        number = arguments.get("frameId")
        focus, level = self._frame(number) if number else (session.focus, session.level)
        value = session.ask("evaluate", text=text, focus=focus, level=level)["values"][focus[2]]
        shown = self._shown(text, value, text, focus, level)
        return {"result": shown["value"], "variablesReference": shown["variablesReference"]}

    def _on_lanes(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Not of the protocol: the variables of a warp by lane, as text, and the lanes that are together."""
        session = self._debugged
        focus = self._focus(arguments) if "threadId" in arguments else session.focus
        at = session.ask("position", focus=focus)
        return {
            "block": at["block"], "warp": at["warp"], "lane": at["lane"], "lanes": at.get("lanes", 0),
            "line": at.get("line", 0), "instruction": session.stop.number,
            "variables": [
                {"name": one["name"], "type": one["type"], "values": _texts(one)}
                for one in self._all(focus, session.level)
            ],
        }  # fmt: skip


def _thread(block: int, warp: int) -> int:
    return block * _WARPS + warp + 1


def _reason(variable: Mapping[str, Any], lane: int) -> str:
    return str(variable["reasons"].get(str(lane), ""))


def _lanes_of(variable: Mapping[str, Any]) -> list[dict[str, Any]]:
    texts = enumerate(_texts(variable))
    return [{"name": f"lane {lane}", "value": text, "variablesReference": 0} for lane, text in texts]


def _texts(variable: Mapping[str, Any]) -> list[str]:
    """Its values by lane."""
    return [
        text_of(value) if value is not None else _reason(variable, lane)
        for lane, value in enumerate(variable["values"])
    ]
