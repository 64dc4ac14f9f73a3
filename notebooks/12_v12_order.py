# %% [markdown]
# # 12 v12_order, v12b_counter, v12c_end_aligned: which work comes first
#
# A persistent kernel chooses the order of its work items. Every order gives the same result. The order decides how
# long the slowest SM takes, and what the L2 cache holds.

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

# %% [markdown]
# ## Items of different length
#
# With a causal mask the first 192 queries of a head see at most 192 keys. The last ones see all 4,096. So a work item
# takes between 3 and 52 tiles of 80 keys. Let us compute when the last of 132 SMs is done, and compare it with a
# perfect distribution. Block b takes the items b, b + 132, and so on:

# %%
SMS, HEADS, ROWS, KEYS, N = 132, 64, 192, 80, 4096


def tiles(last_row):
    """Tiles of keys that a causal work item needs, up to its last row."""
    return -(-min(N, last_row) // KEYS)


def finish(lengths, dynamic=False):
    """When the last SM is done, as a multiple of a perfect distribution."""
    done = [0] * SMS
    for number, length in enumerate(lengths):
        sm = done.index(min(done)) if dynamic else number % SMS
        done[sm] += length
    return max(done) * SMS / sum(lengths)


of_a_head = [tiles(row + ROWS) for row in range(0, N, ROWS)]
orders = {
    "head by head, first rows first": of_a_head * HEADS,
    "head by head, last rows first": of_a_head[::-1] * HEADS,
    "all heads, last rows first": [length for length in reversed(of_a_head) for _ in range(HEADS)],
}
pd.Series({name: f"{finish(lengths):.3f}" for name, lengths in orders.items()}, name="time").to_frame()

# %% [markdown]
# Head by head takes nearly twice as long as it should. 132 SMs are 6 times the 22 items of a head, so each SM gets
# the same rows of every sixth head: some only long items, some only short ones. Longest first is a good rule: the
# short items at the end fill the gaps.
#
# ### Predict
#
# A small case by hand. Two SMs, six items that take 1, 2, 3, 4, 5 and 6. An SM that is done takes the next item. With
# the *shortest* first, when is the last SM done?

# %%
time_shortest_first = None
lessons.predict("time_shortest_first", time_shortest_first)

# %% [markdown]
# ## v12: an order for time and for L2
#
# v11 goes batch by batch: within a batch all heads, last rows first. With a causal mask v12 puts the heads of *all*
# batches together, as many as their K and V allow. Without a mask all items take equally long, and there v12 goes
# head by head, so that blocks which run at the same time read the same K and V:

# %%
lessons.source("v12_order", "/// Causal: at most half as many heads as blocks", "const unsigned heads = min(")

# %%
# %exercise v12_item

# %% [markdown]
# The counts stay v11b's. What changes is where the data comes from. Without a mask, at $d = 128$:

# %%
lessons.busy(["v11b_store", "v12_order"], only=["tensor cores", "L2", "DRAM"])

# %% [markdown]
# ## v12b: a counter
#
# In v12 a block knows all its items from the start. That is fair if all blocks are equally fast, and if the items of
# a round are equally long. Neither is true. In v12b a block takes the next item when it has loaded its last one, from
# a counter in global memory:

# %%
lessons.source(
    "v12b_counter",
    "// All blocks together increment the counter",
    "const WorkItem<A> item(problem, together, number);",
)

# %% [markdown]
# Only the producer takes numbers. It writes the number beside Q's buffer, and the mbarrier that makes Q visible also
# makes the number visible. `atomicInc` wraps at its second argument: each item is followed by one increment, so the
# last one of a launch sets the counter back to 0. In our model:

# %%
longest_first = orders["all heads, last rows first"]
print(
    f"known from the start {finish(longest_first):.3f}, taken from a counter {finish(longest_first, dynamic=True):.3f}"
)

# %% [markdown]
# O and lse are the same bits in every run: the counter decides which block computes an item, not how.
#
# ## v12c: the ragged tile
#
# 4,096 queries are 21 tiles of 192 rows, and 64 rows more. Up to here these 64 rows are the last tile, which sees all
# keys: one consumer of three works, and it takes as long as a full tile. v12c aligns the tiles to the last query, so
# the ragged tile is the first one and sees 64 keys:

# %%
lessons.source("v12c_end_aligned", "row = (p.q_len + 63u) / 64 * 64")

# %%
from_the_end = [tiles(row) for row in range(N, 0, -ROWS)]
print(f"tiles of keys per head: {sum(of_a_head)} before, {sum(from_the_end)} after")

# %% [markdown]
# Counted by the emulator, for one head of 256 queries and keys, $d = 128$, causal:

# %%
problem = ladder.Problem(1, 1, 256, 256, 128, is_causal=True)
rungs = ["v12b_counter", "v12c_end_aligned"]
table = ladder.compare(problem, rungs, backend="emulator").set_index("stage")
table[["wgmma_instructions", "tma_load_instructions", "tma_store_instructions"]].T

# %% [markdown]
# ## What they bought
#
# TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16:

# %%
lessons.measured(["v11b_store", "v12_order", "v12b_counter", "v12c_end_aligned", "torch cuDNN"])

# %% [markdown]
# The counter gains most under a causal mask at $d = 128$. Without a mask it costs a little there: the order of v12
# was already good, and a number must be fetched per item.
#
# ## What is left

# %%
lessons.busy(["v11b_store", "v12_order", "v12c_end_aligned"])

# %% [markdown]
# At $d = 128$ the tensor cores are busy for 95% of the time. What remains is their clock, which falls under their
# power draw. At $d = 64$ neither they nor the exponentials are busy for more than two thirds of the time: a tile
# needs both for the same number of clocks.

# %% [markdown]
# **Practise:** `ladder exercise start v12_item`. **Read on:** the READMEs of [v12](../stages/v12_order/README.md),
# [v12b](../stages/v12b_counter/README.md) and [v12c](../stages/v12c_end_aligned/README.md). **Next:** [13, the whole
# ladder, and a rung of your own](13_the_ladder.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/12_v12_order.ipynb).
