"""What was recorded, for the lessons: the figures of ``results``, and pictures of them.

A :class:`Note` stands in their place if the project is installed without its results.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ladder.course.lessons.notes import Note

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: The file with the speeds of each operation's rungs.
_SPEEDS = {
    "attention": "speed.csv",
    "attention_backward": "backward.csv",
    "hstu": "hstu.csv",
    "hstu_backward": "hstu_backward.csv",
}
#: The problems of :func:`measured` by column heading, all in bf16 with 16 heads.
_MEASURED = {
    "d = 64": (64, False),
    "d = 64, causal": (64, True),
    "d = 128": (128, False),
    "d = 128, causal": (128, True),
}
#: Heading and column of :data:`ladder.counts.nsight.BOUNDS`, for the units that may bound a rung.
UNITS = (
    ("SMs with work", "sms"),
    ("shared memory and L1", "shared"),
    ("tensor cores", "tensor"),
    ("issue slots", "issue"),
    ("exp unit", "xu"),
    ("L2", "l2"),
    ("DRAM", "dram"),
    ("warps resident", "warps"),
)
_MISSING = Note("*The figures that were measured are in the repository, in results/h200.*")


def turns() -> Figure | Note:
    """Draws the order of events in a block of v9 and one of v10b, in the emulator."""
    from ladder.show.plots import turns_picture

    rows = _read("../timeline_emulator.csv")
    return _MISSING if rows is None else turns_picture(rows)


def timeline() -> Figure | Note:
    """Draws the steps of such blocks on an H200, in clocks."""
    from ladder.show.plots import clocks_picture

    rows = _read("timeline.csv", "stage")
    return _MISSING if rows is None else clocks_picture(rows)


def measured_speeds(operation: str = "attention") -> pd.DataFrame | None:
    """The speeds of the rungs of ``attention`` or ``attention_backward`` and of torch, one row per contender
    and problem. None if the project is installed without its results.
    """
    rows = _read(_SPEEDS[operation], "contender")
    if rows is None:
        return None
    keys = ["contender", "N", "d", "dtype", "causal"]
    speeds = rows.dropna(subset="N")[[*keys, "tflops", "of_flash"]]
    return speeds.groupby(keys, sort=False, as_index=False).median()


def measured(
    stages: Sequence[str], operation: str = "attention", *, length: int = 4096
) -> pd.DataFrame | Note:
    """TFLOP/s of these contenders on an H200, at N = M = ``length``."""
    import pandas as pd

    speeds = measured_speeds(operation)
    if speeds is None:
        return _MISSING
    speeds = speeds[(speeds["N"] == length) & (speeds["dtype"] == "bf16")]
    rows = {}
    for stage in _today(stages):
        here = speeds[speeds["contender"] == stage].set_index(["d", "causal"])
        rows[stage] = {
            heading: f"{here.loc[key, 'tflops']:.0f}"
            for heading, key in _MEASURED.items()
            if key in here.index
        }
    return pd.DataFrame.from_dict(rows, orient="index").fillna("")


def measured_hstu(stages: Sequence[str], operation: str = "hstu", *, only: str = "") -> pd.DataFrame | Note:
    """TFLOP/s of these rungs of ``hstu`` or ``hstu_backward`` on an H200, over the pairs of a causal mask; of
    the problems whose name contains ``only``.
    """
    import pandas as pd

    rows = _read(_SPEEDS[operation], "contender")
    if rows is None:
        return _MISSING
    stages = _today(stages)
    table: dict[str, dict[str, str]] = {}
    for row in rows.dropna(subset="N").itertuples():
        if row.contender in stages and only in hstu_problem(row):
            table.setdefault(hstu_problem(row), {})[row.contender] = f"{row.tflops:.0f}"
    return pd.DataFrame.from_dict(table, orient="index", columns=stages).fillna("")


def measured_hstu_peers(contenders: Sequence[str], name: str = "forward") -> pd.DataFrame | Note:
    """TFLOP/s of these rungs and other implementations of HSTU on an H100, of launches in bursts, over the
    pairs of a causal mask. ``name`` is the pass, forward or backward.
    """
    import pandas as pd

    rows = _read("hstu_peers.csv", "contender", gpu="h100")
    if rows is None:
        return _MISSING
    contenders = _today(contenders)
    table: dict[str, dict[str, str]] = {}
    for row in rows[rows["pass"] == name].itertuples():
        if row.contender in contenders:
            table.setdefault(hstu_problem(row), {})[row.contender] = f"{row.tflops_burst:.0f}"
    return pd.DataFrame.from_dict(table, orient="index", columns=contenders).fillna("")


def hstu_problem(row: Any) -> str:
    """A measured HSTU problem in words: sequences, their length, the head dimension and the mask."""
    same = re.sub(r"\b(\d+)(/\1)+\b", r"\1", row.mask)  # the same in each sequence
    bias = f" bias of {row.bias:.0f}" if row.bias else ""
    keys = f" {row.M.partition('/')[0]} keys" if row.M != row.N else ""
    return f"{row.N.count('/') + 1} x {row.N.partition('/')[0]} d{row.d:.0f} {same}{bias}{keys}"


def measured_options(stages: Sequence[str]) -> pd.DataFrame | Note:
    """TFLOP/s of these rungs on an H100 by problem, over the pairs that the mask keeps, and the multiples of
    the dense rung's speeds.
    """
    import pandas as pd

    rows = _read("options.csv", "contender", gpu="h100")
    if rows is None:
        return _MISSING
    table = options_by_head_dim(rows[rows["contender"].isin(_today(stages))])
    return pd.DataFrame.from_dict(table, orient="index").fillna("")


def options_by_head_dim(rows: pd.DataFrame) -> dict[tuple[str, str], dict[str, str]]:
    """By contender and problem, the speeds in bursts by head dimension, with multiples of the dense rung's
    (tools/measure/measure_options.py). The dense rung was measured several times: the median.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    named = rows.assign(problem=[_option(row) for _, row in rows.iterrows()])
    for (contender, problem, d), same in named.groupby(["contender", "problem", "d"], sort=False):
        shown = "" if problem in ("no mask", "causal") else f" ({same['of_dense'].median():.2f})"
        of_problem = found.setdefault((str(contender), str(problem)), {})
        of_problem[f"d = {d:.0f}"] = f"{same['tflops_burst'].median():.0f}{shown}"
    return found


def _option(row: pd.Series[Any]) -> str:
    """A mask, sinks, a softcap and sequences in words."""
    words = ["causal"] if row["causal"] else []
    words += [f"window {row['window']}"] if not row.isna()["window"] else []
    words += ["sinks"] if row["sinks"] else []
    words += [f"softcap {row['softcap']:g}"] if not row.isna()["softcap"] else []
    words += [f"lengths {_repeated(row['lengths'])}"] if not row.isna()["lengths"] else []
    return ", ".join(words) or "no mask"


def _repeated(lengths: str) -> str:
    """``4 x 4096`` for ``4096/4096/4096/4096``."""
    counted = ((length, len([*same])) for length, same in itertools.groupby(lengths.split("/")))
    return ", ".join(f"{count} x {length}" if count > 1 else length for length, count in counted)


def busy(
    stages: Sequence[str], *, length: int = 4096, head_dim: int = 128, only: Sequence[str] = ()
) -> pd.DataFrame | Note:
    """How busy each unit of the H200, or those in ``only``, was in each rung, in percent, and what the warps
    waited for.

    The problem is B = 4, H = 16, N = M = ``length``, in bf16, without a mask.
    """
    import pandas as pd

    from ladder.counts import nsight
    from ladder.show.render import most_stalled

    rows = _read("bounds.csv", "stage")
    if rows is None:
        return _MISSING
    stages = _today(stages)
    here = rows[(rows["N"] == length) & (rows["d"] == head_dim)].set_index("stage").loc[stages]
    shares = nsight.bounds(here)
    shown = {heading: [f"{share:.0f}%" for share in shares[column]] for heading, column in UNITS}
    of_rungs: list[dict[str, float]] = [dict(row) for _, row in shares.iterrows()]
    shown["warps wait for"] = [", ".join(most_stalled(row)[:2]) for row in of_rungs]
    table = pd.DataFrame.from_dict(shown, orient="index", columns=stages)
    return table.loc[list(only)] if only else table


def _today(contenders: Sequence[str]) -> list[str]:
    """The names of rungs in full, and other contenders as they are."""
    from ladder.stages import discover

    return [*map(discover().today, contenders)]


def _read(file: str, names: str = "", gpu: str = "h200") -> pd.DataFrame | None:
    """A file of that GPU's folder in ``results``; its column ``names`` has the rungs' names of today."""
    import pandas as pd

    from ladder.stages import of_today, results_root

    path = results_root() / gpu / file
    if not path.is_file():
        return None
    rows = pd.read_csv(path)
    return of_today(rows, names) if names else rows
