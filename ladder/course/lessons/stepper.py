"""``%%cuda --debug``: a warp's steps as a widget, with the variables of all lanes and a slider over time."""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.errors import LadderError

if TYPE_CHECKING:
    from anywidget import AnyWidget

    from ladder.debugger import Session

#: Steps that are recorded, if the cell does not say how many.
_STEPS = 200


class Steps:
    """The recorded steps of a program's first launch, for one warp at a time."""

    def __init__(self, session: Session, text: str, first_line: int | None, most: int) -> None:
        from ladder.debugger import warps_of

        self._session, self._first_line, self._most = session, first_line, most
        self._begin, self._first = session.stop.moment, session.focus[:2]
        self.source = text.splitlines()
        self.warps = warps_of(session)

    def of(self, number: int) -> list[dict[str, Any]]:
        """The moments of a warp, by its place in ``warps``: from its first line on, or the one asked for."""
        from ladder.debugger import record

        session, (block, warp) = self._session, self.warps[number]
        if session.stop.moment != self._begin:
            session.go_to(self._begin)
        session.focus = (block, warp, 0)
        if self._first_line is not None:
            own = session.add_breakpoint("", self._first_line, f"block == {block} && warp == {warp}")
            stop = session.go()
            session.delete(own.number)
            if stop.why == "end":
                raise LadderError(f"block {block}, warp {warp} does not reach line {own.line}")
        elif (block, warp) != self._first:
            session.go("into")
        return [
            {**asdict(moment), "in_source": moment.file == "program.cu"}
            for moment in record(session, self._most)
        ]


def debug_cell(line: str, cell: str) -> AnyWidget:
    """The widget for the program ``cell``; ``line`` has the options behind ``%%cuda``.

    Raises :class:`LadderError`.
    """
    from ladder.debugger import How, debug_program

    options = _parser().parse_args(line.split())
    widget = _widget_class()
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "wb") as nothing:
        program = Path(folder) / "program.cu"
        text = "\n" + cell  # the first line is the magic's, so that lines count as the cell's do
        program.write_text(text, encoding="utf-8")
        how = How(options.arch, check=options.check)
        steps = Steps(debug_program([program], [], how, output=nothing), text, options.line, options.steps)
        return widget(steps)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise LadderError(f"%%cuda --debug: {message}", self.format_usage().strip())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%cuda", add_help=False)
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--check", action="store_true", help="stop at findings of the sanitizer")
    parser.add_argument("--line", type=int, help="begin where a warp reaches this line")
    parser.add_argument("--steps", type=int, default=_STEPS, help="at most so many")
    parser.add_argument("--arch", help="virtual GPU")
    return parser


@cache
def _widget_class() -> Any:
    """The widget's class. Raises :class:`LadderError` without anywidget."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        hint = "make lab installs the extra notebooks, which has it; or: pip install anywidget"
        raise LadderError("%%cuda --debug needs anywidget", hint) from None

    class Stepper(anywidget.AnyWidget):
        _esm = Path(__file__).with_name("stepper.js")
        source: Any = traitlets.List().tag(sync=True)
        moments: Any = traitlets.List().tag(sync=True)
        warps: Any = traitlets.List().tag(sync=True)
        warp = traitlets.Int(0).tag(sync=True)
        index = traitlets.Int(0).tag(sync=True)

        def __init__(self, steps: Steps) -> None:
            names = [f"block {block}, warp {warp}" for block, warp in steps.warps]
            super().__init__(source=steps.source, moments=steps.of(0), warps=names)
            self._steps = steps

        @traitlets.observe("warp")
        def _choose(self, change: Any) -> None:
            self.index = 0
            self.moments = self._steps.of(change["new"])

        def __repr__(self) -> str:
            last = self.moments[-1]
            steps = f"{len(self.moments)} steps of {self.warps[self.warp]}, to line {last['line']}"
            return f"{steps}: {last['reason']}" if last["reason"] else steps

    return Stepper
