"""The counters of the emulator and the profiler, which are the columns of every table of counts."""

from __future__ import annotations

#: All counters. A cell whose value a backend cannot know is empty, never 0.
COUNTERS = (
    "shared_load_instructions",
    "shared_store_instructions",
    "ldmatrix_instructions",
    "wavefronts_ld",
    "wavefronts_st",
    "conflicts_ld",
    "conflicts_st",
    "conflicts_atom",
    "conflicts",
    "mma_instructions",
    "global_sectors_ld",
    "global_sectors_st",
    "wgmma_instructions",
    "wavefronts_gmma",
    "conflicts_gmma",
    "tma_load_instructions",
    "tma_store_instructions",
    "tma_sectors_ld",
    "tma_sectors_st",
)
