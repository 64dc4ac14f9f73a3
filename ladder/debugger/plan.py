"""How a launch that has stopped goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
