"""Text from outside cannot act on the terminal."""

from __future__ import annotations

import io

import pytest
from rich.table import Table

from ladder.common import progress, terminal
from ladder.errors import LadderError

HOSTILE = "a\x1b[31m\x1b]0;title\x07\x9b2J\u202eb"
SHOWN = "a\u241b[31m\u241b]0;title\ufffd2J\ufffdb"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    for console in (terminal.console, terminal.errors, progress.console):
        monkeypatch.setattr(console, "_file", stream)
    return stream


def test_what_a_terminal_would_obey_is_shown(written: io.StringIO) -> None:
    terminal.console.print(Table(HOSTILE, title=HOSTILE))
    terminal.console.print(HOSTILE, markup=False)
    with progress.steps("Building", 1) as building, building.step(HOSTILE):
        pass
    terminal.show_error(LadderError(f"{HOSTILE}.cu does not compile", HOSTILE))
    assert written.getvalue().replace("\u2407", "").count(SHOWN) == 5
    assert not set(written.getvalue()) & set("\x1b\x07\x9b\u202e")


def test_lines_tabs_and_colours_stay() -> None:
    console = terminal._Console(file=(stream := io.StringIO()), force_terminal=True, color_system="standard")
    console.print("[red]one[/]\ntwo", highlight=False)
    assert stream.getvalue() == "\x1b[31mone\x1b[0m\ntwo\n"
