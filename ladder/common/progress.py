"""Progress of what takes longer than a glance, on stderr, so that stdout holds results alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

console = Console(stderr=True, force_jupyter=False)


class Steps:
    """A number of steps of one piece of work; on a terminal a bar, elsewhere a line for each step."""

    def __init__(self, bar: Progress | None, title: str, total: int, *, says_lines: bool) -> None:
        self._bar = bar
        self._says_lines = says_lines
        self._title = title
        self._lock = threading.Lock()
        self._running: list[str] = []
        self._task = bar.add_task(title, total=total) if bar else None

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """One step; steps may run at once in several threads."""
        with self._lock:
            self._running.append(what)
            if self._says_lines:
                console.print(f"{self._title} {what} ...", markup=False, highlight=False)
        self._show()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(what)
            if self._bar is not None and self._task is not None:
                self._bar.advance(self._task)
            self._show()

    def _show(self) -> None:
        if self._bar is not None and self._task is not None:
            with self._lock:
                running = ", ".join(self._running)
            self._bar.update(self._task, description=f"{self._title} {running}")

    def remove(self) -> None:
        """Takes it off the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)


#: The bar that is on the terminal now: there can be one.
_bar: Progress | None = None


@contextmanager
def steps(title: str, total: int, *, elsewhere: bool = True) -> Iterator[Steps]:
    """``with steps("Building", 3) as progress: with progress.step("v1_minimal"): ...``; leaves no trace on a
    terminal.

    Without ``elsewhere`` it is silent where there is no terminal, and as a part of other steps.
    """
    global _bar
    # A notebook says that it is a terminal, to have colours. A bar would stay in its saved outputs.
    if not sys.stderr.isatty() or (_bar is not None and not elsewhere):
        yield Steps(None, title, total, says_lines=elsewhere)
        return
    if _bar is not None:
        inner = Steps(_bar, title, total, says_lines=False)
        try:
            yield inner
        finally:
            inner.remove()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        _bar = bar
        try:
            yield Steps(bar, title, total, says_lines=False)
        finally:
            _bar = None
