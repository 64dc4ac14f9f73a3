"""When a rank computes and when it communicates: spans of time, from CUDA events or the CPU's clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

#: A point in a stream on a GPU; elsewhere the clock's time in ms.
Moment = torch.cuda.Event | float


@dataclass(frozen=True)
class Span:
    """``kind`` is "compute", "merge" or "communicate"; ``begin`` and ``end`` are in ms since the recording
    began.
    """

    kind: str
    begin: float
    end: float


#: The spans of the recording that is on.
_marks: list[tuple[str, Moment, Moment]] | None = None


def moment(device: torch.device) -> Moment:
    """Marks this moment, on a GPU that of the current stream."""
    if device.type != "cuda":
        return time.perf_counter() * 1e3
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def mark(kind: str, begin: Moment, end: Moment) -> None:
    """Adds a span to the recording, if one is on."""
    if _marks is not None:
        _marks.append((kind, begin, end))


def is_recording() -> bool:
    return _marks is not None


@contextmanager
def span(kind: str, device: torch.device) -> Iterator[None]:
    """Records what is launched inside as one span, if a recording is on."""
    if not is_recording():
        yield
        return
    begin = moment(device)
    yield
    mark(kind, begin, moment(device))


@contextmanager
def recording(device: torch.device) -> Iterator[list[Span]]:
    """Records the spans of this process. The list is filled at the end, when the GPU is done with all."""
    global _marks
    found: list[Span] = []
    marks: list[tuple[str, Moment, Moment]] = []
    start, _marks = moment(device), marks
    try:
        yield found
    finally:
        _marks = None
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    found += [Span(kind, _ms(start, begin), _ms(start, end)) for kind, begin, end in marks]


def _ms(begin: Moment, end: Moment) -> float:
    if isinstance(begin, float) or isinstance(end, float):
        return float(end) - float(begin)  # type: ignore[arg-type]
    elapsed: float = begin.elapsed_time(end)
    return elapsed
