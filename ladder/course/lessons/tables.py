"""Short tables of counts, costs and times for the lessons."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from ladder.course.lessons.listing import line_text
from ladder.course.lessons.notes import Note
from ladder.operations import Problem

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler


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
    """Transposes a comparison for reading: one column per rung, one row per quantity known for any of them.

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
    """Times of the stages (default: all) on this machine's GPU; a :class:`Note` if there is none."""
    from ladder.run.backends import get_backend
    from ladder.run.evaluation import compare

    if not get_backend("auto").times:
        return Note("*No GPU here. The emulator counts and claims no times; on a GPU this cell shows them.*")
    return counts(compare(problem, stages))


def text_table(frame: pd.DataFrame) -> Styler:
    """Styles the frame with text left-aligned; notebooks would align it right, like numbers."""
    texts: list[Hashable] = [
        name for name in frame.columns if frame[name].map(lambda value: " " in str(value)).any()
    ]
    # With random ids, the same table would differ at each execution.
    return frame.style.set_uuid("table").set_properties(subset=texts, **{"text-align": "left"})


def costs(stage: str, problem: Problem | None = None, count: int = 6) -> Styler:
    """The kernel lines of a stage with the most wavefronts on the emulator, in source order.

    The last row is the sum of all other lines.
    """
    import pandas as pd

    from ladder.counts import annotate, line_table
    from ladder.run.evaluation import default_problem, evaluate
    from ladder.show.plots import costliest_lines

    launches = evaluate(stage, problem or default_problem(stage), backend="emulator").execution.launches
    annotated = annotate(line_table(launches))
    lines = costliest_lines(annotated, count)
    known = [(line, line.counts) for line in lines if line.counts is not None]
    wavefronts = [one.wavefronts or 0 for _, one in known]
    conflicts = [one.conflicts or 0 for _, one in known]
    wavefronts.append((annotated.total.wavefronts or 0) - sum(wavefronts))
    conflicts.append((annotated.total.conflicts or 0) - sum(conflicts))
    frame = pd.DataFrame(
        {
            "wavefronts": [f"{count:,}" for count in wavefronts],
            "conflicts": [f"{count:,}" for count in conflicts],
            "source": [*(line_text(stage, line.number, line.text) for line, _ in known), "all other lines"],
        },
        index=pd.Index([*(str(line.number) for line, _ in known), ""], name="line"),
    )
    return text_table(frame)
