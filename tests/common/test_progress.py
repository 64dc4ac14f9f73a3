"""Progress messages on stderr."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from ladder.common import progress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    text = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=text, force_terminal=True, width=80))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    return text


def test_steps_within_steps_share_the_bar(terminal: io.StringIO) -> None:
    with progress.steps("Drawing", 1, elsewhere=False) as outer, outer.step("costs"):
        with progress.steps("Building", 2) as inner:
            for name in ("v1", "v2"):
                with inner.step(name):
                    progress._bar.refresh()
        with progress.steps("Running", 1, elsewhere=False) as silent, silent.step("v1"):
            progress._bar.refresh()
    text = terminal.getvalue()
    assert "Drawing costs" in text and "Building v1" in text and "Building v2" in text
    assert "Running" not in text
    with progress.steps("Running", 1, elsewhere=False) as again, again.step("v1"):
        progress._bar.refresh()
    assert "Running v1" in terminal.getvalue()


@pytest.mark.parametrize("elsewhere", [True, False])
def test_without_a_terminal_there_is_a_line_a_step_or_nothing(
    monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    text = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=text))
    with progress.steps("Building", 1, elsewhere=elsewhere) as steps, steps.step("v1"):
        pass
    assert text.getvalue() == ("Building v1 ...\n" if elsewhere else "")
