"""What was measured before the rungs were split, under the names of today."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

#: Rows of earlier days bear the names that the rungs had then.
SPLIT = "2026-11-23"
#: The rungs that have the code, and the tile sizes, of what was measured under another name.
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
#: The rungs of the same name whose kernel is another one today.
CHANGED = frozenset({"v2_warp_mma", "v3_swizzle", "v3_swizzle_for_128"})


def of_today(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows under the names of today; without those of kernels that no rung has any more.

    ``column`` has the names, ``date`` the day on which a row was measured (YYYY-MM-DD).
    """
    before = rows["date"] < SPLIT
    kept = rows[~(before & rows[column].isin(CHANGED))]
    return kept.assign(**{column: kept[column].where(~before, kept[column].replace(RENAMED))})
