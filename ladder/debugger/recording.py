"""The steps of one warp, each with its variables by lane: what a table with a slider over time shows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ladder.debugger.session import Session, Stop
from ladder.debugger.tables import lanes_text, text_of
from ladder.debugger.values import NoValue

#: Why a step ended, in the words of a reader.
_REASONS = {"end": "the launch has ended", "breakpoint": "breakpoint"}


@dataclass(frozen=True)
class Moment:
    """Where a warp is before it executes a line, and its variables then.

    ``same`` has the variables that are equal in all lanes: name and value. ``differing`` has the names of
    the others; ``lanes`` has their values for each of the 32 lanes, "" where a lane has none.
    """

    number: int
    file: str
    line: int
    function: str
    together: str
    reason: str
    same: tuple[tuple[str, str], ...]
    differing: tuple[str, ...]
    lanes: tuple[tuple[str, ...], ...]


def warps_of(session: Session) -> list[tuple[int, int]]:
    """The block's number and the warp's, of all warps of the blocks that run now."""
    return [(warp["block_number"], warp["warp"]) for warp in session.ask("warps")["warps"] if warp["paths"]]


def record(session: Session, most: int) -> list[Moment]:
    """The stop, and those behind it: steps the thread in focus from line to line, over calls, to the end of
    its launch or a fault, for at most ``most`` moments.
    """
    return list(_moments(session, most))


def _moments(session: Session, most: int) -> Iterator[Moment]:
    focus = session.focus
    yield _moment(session, session.stop)
    for _ in range(most - 1):
        session.focus = focus
        stop = session.go("over")
        if stop.has_ended:
            return
        yield _moment(session, stop)
        if stop.why in ("end", "fault"):
            return


def _moment(session: Session, stop: Stop) -> Moment:
    at: Mapping[str, Any] = stop.at or {}
    try:
        variables = session.ask("variables", focus=session.focus)["variables"] if at else []
    except NoValue:
        variables = []
    same, differing = [], []
    for one in variables:
        shown = {text_of(value) for value in one["values"] if value is not None}
        if len(shown) == 1:
            same.append((one["name"], shown.pop()))
        elif shown:
            differing.append(one)
    return Moment(
        number=stop.number,
        file=os.path.basename(at.get("file", "")),
        line=at.get("line", 0),
        function=at.get("function", ""),
        together=lanes_text(at["lanes"]) if at else "",
        reason=_reason(session, stop),
        same=tuple(same),
        differing=tuple(one["name"] for one in differing),
        lanes=tuple(tuple(text_of(one["values"][lane]) for one in differing) for lane in range(32)),
    )


def _reason(session: Session, stop: Stop) -> str:
    if stop.why == "fault":
        return f"fault: {stop.fault}"
    if stop.why == "finding" and (found := session.findings()):
        return f"the sanitizer has found ({found[-1].kind}): {found[-1].message}"
    return _REASONS.get(stop.why, "")
