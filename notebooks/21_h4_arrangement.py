# %% [markdown]
# # 21 h4_arrangement, h5_paged: few queries, and keys in pages
#
# A recommender that serves requests has few queries, the candidates, and a long log of keys. It has processed most of
# these keys before. Two rungs are made for that: one splits the keys among the warps, the other reads keys from the
# pages of a cache.

# %% tags=["colab", "remove-cell"] jupyter={"source_hidden": true}
# Installs the project where it is not there yet, as on Colab: its wheel, or else its sources, which takes minutes.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("ladder") is None:
    sources = "flash-ladder @ git+https://github.com/flash-ladder/flash-ladder"
    install = [sys.executable, "-m", "pip", "install", "-q"]
    if subprocess.run([*install, "--only-binary=flash-ladder", "flash-ladder"]).returncode != 0:
        subprocess.run([*install, sources], check=True)

# %%
# %load_ext ladder.lessons
import pandas as pd

import ladder
from ladder import lessons
from ladder.operations import HstuProblem

# %% [markdown]
# ## h4: sixteen queries, four warps
#
# In this ladder so far, the warps of a block split the *queries*, 32 rows each. With 16 queries one warp has all of
# them, and the other three have nothing to multiply. It also multiplies 16 rows that do not exist.
#
# So h4 has two arrangements, and the host chooses. Up to 32 queries per sequence, all warps of a block have the
# *same* 16 queries and split the *keys*: warp i has the i-th tile of each buffer.

# %%
# %exercise h4_own

# %%
lessons.source("h4", "mma_ABt(s, q, k_smem[now][part]);", "mma_AB(o, p_16, v_smem[now][part], o);")

# %% [markdown]
# ### Predict
#
# At $d = 64$ a warp's tile has 32 keys in both arrangements. A sequence has 16 queries and 4,096 keys, all visible.
# How many tiles does the busiest warp multiply if the warps split the keys?

# %%
tiles_of_the_busiest = None
lessons.predict("tiles_of_the_busiest", tiles_of_the_busiest)

# %% [markdown]
# ## Adding the parts
#
# At the end each warp has a part of every sum. With a softmax, the parts would have to be merged by their maxima: (m,
# l, O) of one with (m, l, O) of the other. Without a softmax it is an addition. The buffers of K are free by then,
# and hold the parts:

# %%
lessons.source("h4", "if constexpr (A::split_keys) {", "  }")

# %%
# %exercise h4_sum

# %% [markdown]
# ## Counted
#
# The problem has 16 queries, all of them targets, and 1,024 keys. The last row counts the `mma` of the busiest warp:

# %%
few = HstuProblem(heads=1, head_dim=64, q_lens=(16,), kv_lens=(1024,), targets=(16,))
table = ladder.compare(few, ["h2", "h4"], backend="emulator").set_index("stage")
shown = table[["mma_instructions", "ldmatrix_instructions", "global_sectors_ld"]].T
busy_warps = pd.Series([1, 4], table.index)
shown.loc["mma of the busiest warp"] = (shown.loc["mma_instructions"] / busy_warps).astype(int)
shown

# %% [markdown]
# Each fragment of K and V now serves 16 rows instead of 32. So splitting keys is faster only if the other warps would
# have no rows. With many queries h4 takes h2's arrangement. It is then at most 6% slower than h2. These are TFLOP/s
# on an H200:

# %%
lessons.measured_hstu(["h2", "h4"])

# %% [markdown]
# With few queries h4 is faster. For 8 sequences with 16 queries and 4,096 keys each, h2 takes 91 microseconds on an
# H100 at $d = 64$, and h4 52. At $d = 128$ h2 takes 137, and h4 95 (`results/h100/few_queries.csv`).
#
# ## h5: keys in pages
#
# A serving system keeps the keys and values of logs that it has processed. Logs grow, so their keys cannot stay
# contiguous. Each log gets *pages* of a cache, wherever there is room. A table lists the pages of each log:

# %%
PAGE = 32
lengths = {"user 0": 70, "user 1": 40}
free = iter([5, 2, 7, 0, 3])  # pages in the order in which they became free
rows = {}
for user, length in lengths.items():
    pages = [next(free) for _ in range(-(-length // PAGE))]
    rows[user] = {
        "tokens": length,
        "pages": pages,
        "tokens in the last page": length - (len(pages) - 1) * PAGE,
    }
pd.DataFrame(rows).T

# %% [markdown]
# **A page is a tile.** The kernel's loop is h2's. Only the address of tile i changes. The last page may be partly
# filled; then the tile has fewer rows, and the rest is loaded as zeros:

# %%
lessons.source("h5", "/// Tile i: page i of the history or", "return {history + target, count,")

# %%
# %exercise h5_page

# %% [markdown]
# The targets are candidates, scored once and discarded. They are not in the cache: their keys are the last rows of
# `k` and `v`, and the first target begins a new tile. So the last page of the history may be partly filled, and its
# tile then ends with unused rows. But the positions of the keys have no gap:

# %%
contiguous = HstuProblem(heads=1, head_dim=64, q_lens=(40,), kv_lens=(360,), targets=(40,))
paged = HstuProblem(heads=1, head_dim=64, q_lens=(40,), kv_lens=(360,), targets=(40,), page_size=32)
for problem, rung in ((contiguous, "h2"), (paged, "h5")):
    counted = ladder.compare(problem, [rung], backend="emulator").iloc[0]
    print(
        f"{counted['stage']:8}: {counted['mma_instructions']:6,} mma, {counted['global_sectors_ld']:6,} sectors read"
    )

# %% [markdown]
# K and V take equally many sectors. The other 196 are reads of the table: each warp looks up the page of each tile.
#
# **What is left:** both rungs use `mma.sync`. The last rung of this ladder moves HSTU attention to `wgmma` and TMA.

# %% [markdown]
# **Practise:** the exercises begin with `h4_` and `h5_`. **Read on:** the READMEs of
# [h4](../stages/hstu/h4_arrangement/README.md) and [h5](../stages/hstu/h5_paged/README.md). **Next:** [22, HSTU attention on
# Hopper](22_h6_wgmma.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/21_h4_arrangement.ipynb).
