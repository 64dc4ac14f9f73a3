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

    def __init__(self, bar: Progress | None, title: str, total: int) -> None:
        self._bar = bar
        self._title = title
        self._lock = threading.Lock()
        self._running: list[str] = []
        self._task = bar.add_task(title, total=total) if bar else None

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """One step; steps may run at once in several threads."""
        with self._lock:
            self._running.append(what)
            if self._bar is None:
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


@contextmanager
def steps(title: str, total: int) -> Iterator[Steps]:
    """``with steps("Building", 3) as progress: with progress.step("v1_minimal"): ...``; leaves no trace on a
    terminal."""
    # A notebook says that it is a terminal, to have colours. A bar would stay in its saved outputs.
    if not sys.stderr.isatty():
        yield Steps(None, title, total)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield Steps(bar, title, total)
