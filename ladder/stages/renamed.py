"""Names that rungs had earlier: aliases of today's rungs, and what was measured under earlier names."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Container, Mapping
from functools import cache
from typing import TYPE_CHECKING

from ladder.errors import EarlierName

if TYPE_CHECKING:
    import pandas as pd

#: The day on which rungs became part of another one, and the version that no longer accepts their names.
FOLD, FOLDED_UNTIL = "2026-11-28", "0.4"
#: Those rungs, by name, and the rung that each is part of.
FOLDED: dict[str, str] = {
    "b2c_large_blocks": "b2b_pairs",
    "b4c_tma_stores": "b4d_roles",
    "b4f_halves": "b4g_wide_adds",
    "b5c_80_queries": "b5d_80_queries",
    "b5d_loads_ahead": "b5e_loads_ahead",
    "b5e_dim_64": "b5e_loads_ahead",
    "v6b_lazy_rescale": "v6_late_scale",
    "v6c_lane_reductions": "v6_late_scale",
    "v6d_tall_warps": "v6e_parts",
    "v7b_large_tiles": "v7_wgmma",
    "v9b_three_consumers": "v9_roles",
    "v12d_few_heads": "v12c_end_aligned",
    "h3d_written_once": "h3c_bias_gradient",
    "h3f_large_blocks": "h3e_pairs",
    "h7_counter": "h7_tile_scheduler",
    "h7b_end_aligned": "h7_tile_scheduler",
    "h7c_few_heads": "h7_tile_scheduler",
}
#: Those of them whose kernel no rung has any more. The kernels of the others are those of the rung today.
GONE: frozenset[str] = frozenset(
    {
        "b4c_tma_stores",
        "b4f_halves",
        "b5d_loads_ahead",
        "h7_counter",
        "h7b_end_aligned",
        "v6b_lazy_rescale",
        "v6d_tall_warps",
    }
)

#: Rungs that only have another name today, which `python -m tools.rename_rung` adds, and which name.
OTHER_NAMES: dict[str, str] = {}

#: Rows of earlier days bear the names that the rungs had then.
SPLIT = "2026-11-23"
#: The rungs that had the code, and the tile sizes, of what was measured under another name.
RENAMED = {
    "v6_lean": "v6e_parts",
    "v7_wgmma": "v7b_large_tiles",
    "v9_roles": "v9b_three_consumers",
    "v10_pingpong": "v10b_overlap",
    "v11_persistent": "v12_order",
    "b2_one_pass": "b2c_large_blocks",
    "b4_wgmma": "b4g_wide_adds",
    "h3b_gradients": "h3f_large_blocks",
}
#: The rungs of the same name whose kernel became another one then.
CHANGED = frozenset({"v2_warp_mma", "v3_swizzle", "v3_swizzle_for_128"})


def of_today(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows under the names of today; without those of kernels that no rung has any more.

    ``column`` has the names, ``date`` the day on which a row was measured (YYYY-MM-DD).
    """
    rows = _renamed(rows, column, SPLIT, RENAMED, CHANGED)
    kernels = {name: today for name, today in FOLDED.items() if name not in GONE}
    return _renamed(rows, column, FOLD, kernels, GONE | set(kernels.values()))


def _renamed(
    rows: pd.DataFrame, column: str, day: str, names: Mapping[str, str], gone: Collection[str]
) -> pd.DataFrame:
    """The rows; those from before ``day`` under the names that the rungs got then, and without ``gone``."""
    before = rows["date"] < day
    kept = rows[~(before & rows[column].isin(gone))]
    return kept.assign(**{column: kept[column].where(~before, kept[column].replace(names))})


def name_today(name: str, known: Container[str]) -> str:
    """The name of the rung that ``name`` is part of today, or that it names, with one warning per process;
    ``name`` itself if it is in ``known`` or was never another one.
    """
    today = {**FOLDED, **OTHER_NAMES}.get(name, name)
    if name in known or today == name:
        return name
    _warn(name, today)
    return today


@cache
def _warn(name: str, today: str) -> None:
    warnings.warn(
        f"{name} is part of {today} today, which is used instead; {name} works until version {FOLDED_UNTIL}",
        EarlierName,
        stacklevel=2,
    )
