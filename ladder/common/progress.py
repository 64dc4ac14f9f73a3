"""Progress of long work, shown on stderr so that stdout holds only results."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from ladder.common.terminal import SafeConsole

console = SafeConsole(stderr=True, force_jupyter=False)
#: Of a bar, per second: each takes some milliseconds.
_REFRESHES = 3


class Steps:
    """The progress of one piece of work, in steps.

    Shown as a bar on a terminal, as a line that disappears after each step in a notebook, and as one line per
    step elsewhere.
    """

    def __init__(self, bar: Progress | None, title: str, total: int, *, says_lines: bool) -> None:
        self._bar = bar
        self._says_lines = says_lines
        self._title = title
        self._lock = threading.Lock()
        self._running: list[str] = []
        self._task = bar.add_task(title, total=total) if bar else None

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Shows one step while the block runs; several threads may run steps at once."""
        with self._lock:
            self._running.append(what)
            line = _say(f"{self._title} {what} ...") if self._says_lines else None
        self._show()
        try:
            yield
        finally:
            if line is not None:
                line.update({"text/plain": ""}, raw=True)
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
        """Removes the bar from the terminal."""
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)


def _say(text: str) -> Any:
    """Prints a line, or displays it in a notebook, which would style stderr as an error.

    Returns a handle to update the displayed line, or None.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if not hasattr(shell, "kernel"):
        console.print(text, markup=False, highlight=False)
        return None
    from IPython.display import display

    return display({"text/plain": text}, raw=True, display_id=True)


#: The bar on the terminal; there is at most one.
_bar: Progress | None = None


@contextmanager
def steps(title: str, total: int, *, elsewhere: bool = True) -> Iterator[Steps]:
    """Shows progress, as in ``with steps("Building", 3) as progress: with progress.step("v1"): ...``.
    Leaves no trace on a terminal.

    With ``elsewhere`` false, shows nothing without a terminal or inside other steps.
    """
    global _bar
    # A notebook claims to be a terminal to get colours, but a bar would stay in its saved outputs.
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
    with Progress(*columns, console=console, transient=True, refresh_per_second=_REFRESHES) as bar:
        _bar = bar
        try:
            yield Steps(bar, title, total, says_lines=False)
        finally:
            _bar = None
