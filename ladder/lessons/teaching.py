"""What the lessons are made with: lines of a kernel read from its source, predictions, short tables.

What they return shows itself in a notebook and as text elsewhere.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.errors import LadderError
from ladder.operations import Problem
from ladder.stages import discover

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler


class LessonError(LadderError):
    """A lesson asks for a line that the source does not have, or has more than once."""


_STYLE = "background: #f8f8f8; color: #222; padding: 0.5em; overflow-x: auto"


@dataclass(frozen=True)
class Excerpt:
    """Lines of a source file, the first of them with the number ``first``."""

    name: str
    first: int
    lines: tuple[str, ...]

    def _repr_html_(self) -> str:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import CppLexer

        # Colours in the text itself, on a ground of their own: no page's style sheet is needed.
        formatter = HtmlFormatter(
            noclasses=True, linenos="inline", linenostart=self.first, cssstyles=_STYLE, prestyles="margin: 0"
        )
        code = highlight(textwrap.dedent("\n".join(self.lines)), CppLexer(stripnl=False), formatter)
        return f"<b>{html.escape(self.name)}</b>{code}"

    def __str__(self) -> str:
        return "\n".join(f"{number:>4}  {text}" for number, text in enumerate(self.lines, self.first))


def _source(stage: str, file: str) -> tuple[str, list[str]]:
    path: Path = discover()[stage].source(file)
    if not path.is_file():
        raise LessonError(f"{stage} has no file {file}")
    return f"{stage}/{file}", path.read_text(encoding="utf-8").splitlines()


def line_of(stage: str, pattern: str, file: str = "kernel.cu") -> int:
    """The number of the line of a stage's source that holds ``pattern``. Raises :class:`LessonError` unless
    there is exactly one."""
    name, lines = _source(stage, file)
    found = [number for number, text in enumerate(lines, 1) if pattern in text]
    if len(found) != 1:
        places = f" ({', '.join(map(str, found))})" if found else ""
        raise LessonError(f"{name} has {len(found)} lines{places} with {pattern!r}; a lesson needs one")
    return found[0]


def source(stage: str, first: str, last: str | None = None, *, file: str = "kernel.cu") -> Excerpt:
    """The lines of a stage's source from the one that holds ``first`` to the next that holds ``last``.

    Both are pieces of lines; ``first`` must be in one line alone. Without ``last`` it is that line.
    Raises :class:`LessonError`.
    """
    name, lines = _source(stage, file)
    begin = line_of(stage, first, file)
    end = begin
    if last is not None:
        end = next((number for number, text in enumerate(lines, 1) if number >= begin and last in text), 0)
        if not end:
            raise LessonError(f"{name} has no line with {last!r} after line {begin}")
    return Excerpt(name, begin, tuple(lines[begin - 1 : end]))


@dataclass(frozen=True)
class Note:
    """A sentence or two."""

    text: str

    def _repr_markdown_(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Verdict(Note):
    """What a prediction is worth: ``right`` is None while there is none."""

    right: bool | None


def check(prediction: float | None, measured: float, *, hint: str, because: str) -> Verdict:
    """Compares what somebody predicted with what was measured.

    While ``prediction`` is None the answer stays hidden and ``hint`` helps; after that ``because`` explains
    it, whether the prediction was right or not.
    """
    if prediction is None:
        return Verdict(
            f"**Your turn.** Write your number instead of `None` and run this again. {hint}", right=None
        )
    if isinstance(prediction, bool) or not isinstance(prediction, int | float):
        return Verdict(f"**{prediction!r} is no number.** {hint}", right=False)
    if prediction == measured:
        return Verdict(f"**Right: {measured:,}.** {because}", right=True)
    return Verdict(f"**Not quite: you said {prediction:,}, it is {measured:,}.** {because}", right=False)


_HEADINGS = {
    "passed": "right",
    "shared_load_instructions": "shared loads",
    "shared_store_instructions": "shared stores",
    "ldmatrix_instructions": "ldmatrix",
    "wavefronts_ld": "wavefronts, loads",
    "wavefronts_st": "wavefronts, stores",
    "conflicts_ld": "conflicts, loads",
    "conflicts_st": "conflicts, stores",
    "conflicts": "bank conflicts",
    "mma_instructions": "mma",
    "global_sectors_ld": "sectors read",
    "global_sectors_st": "sectors written",
    "time_ms": "time, ms",
    "tflops": "TFLOP/s",
}


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """A comparison turned on its side for reading: a column a rung, a row for what is known of any of them.

    ``table`` is what :func:`ladder.compare` returns.
    """
    import pandas as pd

    shown = {
        heading: [_cell(value) for value in table[column]]
        for column, heading in _HEADINGS.items()
        if table[column].notna().any()
    }
    return pd.DataFrame.from_dict(shown, orient="index", columns=list(table["stage"]))


def _cell(value: Any) -> str:
    import pandas as pd

    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:,.3g}"
    if str(value) in ("True", "False"):
        return "yes" if value else "NO"
    return f"{value:,}"


def times(stages: Sequence[str] | None = None, problem: Problem | None = None) -> pd.DataFrame | Note:
    """Times of the stages (default: all) on the GPU of this machine; a :class:`Note` where there is none."""
    from ladder.backends import get_backend
    from ladder.evaluation import compare

    if not get_backend("auto").times:
        return Note("*No GPU here. The emulator counts and claims no times; on a GPU this cell shows them.*")
    return counts(compare(problem, stages))


def text_table(frame: pd.DataFrame) -> Styler:
    """The frame with its texts flush left, where a notebook would set them like numbers."""
    texts: list[Hashable] = [
        name for name in frame.columns if frame[name].map(lambda value: " " in str(value)).any()
    ]
    # Without an id of its own the same table would be another at each execution.
    return frame.style.set_uuid("table").set_properties(subset=texts, **{"text-align": "left"})


def costs(stage: str, problem: Problem | None = None, count: int = 6) -> Styler:
    """The lines of a stage that cost the most wavefronts on the emulator, in the source's order."""
    import pandas as pd

    from ladder.evaluation import default_problem, evaluate
    from ladder.lines import annotate, line_table
    from ladder.plots import costliest_lines

    launches = evaluate(stage, problem or default_problem(stage), backend="emulator").execution.launches
    lines = costliest_lines(annotate(line_table(launches)), count)
    known = [(line, line.counts) for line in lines if line.counts is not None]
    frame = pd.DataFrame(
        {
            "wavefronts": [f"{one.wavefronts:,}" for _, one in known],
            "conflicts": [f"{one.conflicts:,}" for _, one in known],
            "source": [line.text.strip() for line, _ in known],
        },
        index=pd.Index([line.number for line, _ in known], name="line"),
    )
    return text_table(frame)


def conflicts_of(
    stage: str, pattern: str, problem: Problem | None = None, *, file: str = "kernel.cu"
) -> tuple[int, int]:
    """(executions by warps, conflicts) of the line that holds ``pattern``, on the emulator."""
    from ladder.banks import explain

    number = line_of(stage, pattern, file)
    found = explain(f"{stage}:{file}:{number}", problem)
    return sum(one.executed for one in found.instructions), found.conflicts
