"""The picture of speeds: every rung beside torch's attention and the GPU's limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from ladder.show.plots.figure import BLUE, GREY, INK, LIGHT, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def speed_picture(
    table: pd.DataFrame, problems: list[dict[str, Any]], ceiling: float | None = None
) -> Figure:
    """Draws one panel per problem, with one bar per contender, in TFLOP/s.

    ``table`` is the output of ``python -m tools.bench gpu``; a problem is ``{"N": 4096, "d": 64, "dtype":
    "bf16", "causal": False}``. A rung that does not take its dtype is shown on the problem it was measured
    on, with a note. The dashed line is ``ceiling``, the TFLOP/s of mma.sync on registers alone (``python -m
    tools.bench ceilings``), which no kernel that uses mma.sync exceeds. v7 and above, and cuDNN, use wgmma,
    which is faster.
    """
    panels = [_rows(table, problem) for problem in problems]
    bars = max(len(panel) for panel in panels)
    figure = new_figure(6.2 * len(problems), 1.5 + 0.52 * bars)
    grid = figure.subplots(1, len(problems), squeeze=False)
    furthest = max(float(panel["tflops"].max()) for panel in panels)
    for axes, panel, problem in zip(grid.flat, panels, problems, strict=True):
        _draw(axes, panel, ceiling)
        causal = ", causal" if problem["causal"] else ""
        axes.set_title(
            f"N = {problem['N']}, d = {problem['d']}, {problem['dtype']}{causal}",
            fontsize=14, color=INK, loc="left", pad=14,
        )  # fmt: skip
        axes.set_xlim(0, 1.22 * max(furthest, ceiling or 0))
    return figure


def _rows(table: pd.DataFrame, problem: dict[str, Any]) -> pd.DataFrame:
    """The contenders on this problem, and rungs measured only in another dtype, slowest first."""
    measured = table[table["N"].notna()]
    alike = (measured["d"] == problem["d"]) & (measured["causal"].astype(str) == str(problem["causal"]))
    here = alike & (measured["N"] == problem["N"]) & (measured["dtype"] == problem["dtype"])
    rungs = measured[~measured["contender"].str.startswith("torch")]
    others = rungs[~rungs["contender"].isin(rungs[rungs["dtype"] == problem["dtype"]]["contender"])]
    others = others[alike[others.index]]
    chosen = pd.concat([measured[here].assign(note=""), others.assign(note=_own_problem(others))])
    chosen = chosen[chosen["contender"] != "torch efficient"]
    return chosen.sort_values("tflops", ignore_index=True)


def _own_problem(rows: pd.DataFrame) -> list[str]:
    return [f", {row['dtype']}, N = {int(row['N'])}" for _, row in rows.iterrows()]


def _draw(axes: Axes, panel: pd.DataFrame, ceiling: float | None) -> None:
    is_torch = panel["contender"].str.startswith("torch")
    colours = [LIGHT if theirs else BLUE for theirs in is_torch]
    axes.barh(
        panel.index, panel["tflops"], 0.66, color=colours, edgecolor=[GREY if t else BLUE for t in is_torch]
    )
    for place, row in panel.iterrows():
        ratio = row["of_flash"]
        shown = f"{row['tflops']:.3g}" + (f"  ({ratio:.2f})" if pd.notna(ratio) else "") + row["note"]
        axes.annotate(
            shown, (row["tflops"], place), xytext=(6, 0), textcoords="offset points", va="center",
            fontsize=12, color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
    if ceiling is not None:
        axes.axvline(ceiling, color=ORANGE, linestyle="--", linewidth=1.5, zorder=0)
        axes.annotate(
            f"mma.sync alone: {ceiling:.0f}; wgmma goes further", (ceiling, len(panel) - 0.45),
            xytext=(-4, 0), textcoords="offset points", ha="right", va="bottom", fontsize=11, color=ORANGE,
        )  # fmt: skip
    axes.set_yticks(list(panel.index))
    axes.set_yticklabels(list(panel["contender"]), fontsize=12.5, color=INK)
    axes.set_ylim(-0.6, len(panel) - 0.1)
    axes.set_xlabel("TFLOP/s, and the multiple of torch's flash backend", fontsize=11.5, color=INK)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", colors=GREY)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
