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
# takes between 3 and 52 tiles of 80 keys. This model computes when the last of 132 SMs is done. A time of 1 would be
# a perfect distribution. Block b takes the items b, b + 132, and so on:

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
    "16 heads at a time, last rows first (v11)": [
        length for _ in range(HEADS // 16) for length in reversed(of_a_head) for _ in range(16)
    ],
    "all heads, last rows first": [length for length in reversed(of_a_head) for _ in range(HEADS)],
}
pd.Series({name: f"{finish(lengths):.3f}" for name, lengths in orders.items()}, name="time").to_frame()

# %% [markdown]
# The order head by head takes nearly twice as long as a perfect distribution. A head has 22 items, and 132 is 6 x 22.
# So each SM gets the same rows of every sixth head: some SMs get only long items, others only short ones.
#
# v11 goes batch by batch, and a batch has 16 heads. Within a batch the last rows of all its heads come first, so the
# items become shorter and shorter. With four batches this happens four times, and the long items of the last batch
# begin late. *Longest first* over all heads is better: all long items begin early, and the short ones at the end fill
# the gaps.
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
# With a causal mask v12 puts the heads of *all* batches into one group, as long as their K and V have at most 128 MB.
# This order has a price: blocks that run at the same time read K and V of many heads, which compete for the L2 cache.
# The constant is more than the cache holds, but blocks that read the same tile do so at about the same time. Without a
# mask all items take equally long. There v12 goes head by head, so that blocks which run at the same time read the same
# K and V:

# %%
lessons.source("v12", "/// Heads per group. Causal: at most half", "const unsigned heads = min(")

# %%
# %exercise v12_item

# %% [markdown]
# The counts are v11b's. But the L2 cache handles 40% fewer sectors, and DRAM moves 45% fewer bytes. This is without a
# mask, at $d = 128$:

# %%
lessons.busy(["v11b", "v12"], only=["tensor cores", "L2", "DRAM"])

# %% [markdown]
# ## v12b: a counter
#
# In v12 a block's items are fixed before the launch. This balances the load only if all blocks are equally fast, and if
# the items that they compute at the same time are equally long. Neither is true. In v12b a block takes its next item
# when its producer has issued all loads of the current one. The item's number comes from a counter in global memory.
# This is called a *dynamic tile scheduler*:

# %%
lessons.source(
    "v12b",
    "// The counter is incremented after each item",
    "const WorkItem<A> item(problem, together, number);",
)

# %% [markdown]
# Only the producer takes numbers. It writes the number beside Q's buffer. The mbarrier that makes Q visible also makes
# the number visible. `atomicInc(counter, count - 1)` adds 1 and returns the old value. If the old value is `count - 1`,
# it sets the counter to 0 instead. A launch executes it once per item, `count` times, so its last execution sets the
# counter back to 0.
#
# In the model from the beginning of this lesson, a counter gives:

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
# 4,096 queries are 21 tiles of 192 rows, and 64 rows more. In the rungs before, these 64 rows are the last tile, which
# sees all keys. It takes as long as a full tile, but only one consumer of three has rows. v12c aligns the tiles to the
# last query. Then the tile of 64 rows is the first tile, and sees only 64 keys:

# %%
lessons.source("v12c", "row = (p.q_len + 63u) / 64 * 64")

# %%
from_the_end = [tiles(row) for row in range(N, 0, -ROWS)]
print(f"tiles of keys per head: {sum(of_a_head)} before, {sum(from_the_end)} after")

# %% [markdown]
# The emulator counts, for one head of 256 queries and keys, $d = 128$, causal:

# %%
problem = ladder.Problem(1, 1, 256, 256, 128, is_causal=True)
rungs = ["v12b", "v12c"]
table = ladder.compare(problem, rungs, backend="emulator").set_index("stage")
table[["wgmma_instructions", "tma_load_instructions", "tma_store_instructions"]].T

# %% [markdown]
# ### Few heads per group
#
# v12 needs large groups of heads: with fixed items, each group must have enough of them to balance the load. With a
# counter this is not required: a block that is done takes the next item, even of the next group. The model gives, with
# the tiles of v12c:

# %%
for together in (64, 16, 8):
    lengths = [length for length in from_the_end * (HEADS // together) for _ in range(together)]
    fixed, taken = finish(lengths), finish(lengths, dynamic=True)
    print(f"{together:2} heads together: known from the start {fixed:.3f}, taken from a counter {taken:.3f}")

# %% [markdown]
# So a group may be so small that its K and V fit in the L2 cache. v12c has at most 16 heads per group (`kMostHeads`), and
# at most 32 MB of their K and V (`kMostBytes`). The L2 cache of an H100 holds 50 MB:

# %%
lessons.source("v12c", "static unsigned heads_together", "return p.is_causal ?")

# %% [markdown]
# The size of a group changes the order of the items, and no count.
#
# ## What they bought
#
# These are TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16:

# %%
lessons.measured(["v11b", "v12", "v12b", "v12c", "torch cuDNN"])

# %% [markdown]
# With a causal mask v12's order gains 3% at $d = 64$, and loses 3% at $d = 128$. The model promises 9%, but it only
# counts tiles. Without a mask the order gains 3% at $d = 128$, and nothing at $d = 64$. The counter gains 3 to 4%
# with a causal mask, and up to 2% without one. With its groups of heads and its tiles, v12c gains 7 and 12% with a
# causal mask, and nothing without one, where v12b's order was already good.
#
# On an H100, the small groups gain with a causal mask 7 to 9% at $d = 256$ in bursts, in three runs (651 to 694 TFLOP/s
# in the last run). In single launches they gain between -2 and 5%. At N = 1,024 and $d = 128$ they gain 8 to 9% in
# bursts (481 to 524), and 6 to 7% in single launches. At $d = 64$ they gain at most 2%. v12c's
# [README](../stages/v12c_end_aligned/README.md#what-it-buys) says more.
#
# ## What is left

# %%
lessons.busy(["v11b", "v12", "v12b"])

# %% [markdown]
# At $d = 128$ the tensor cores are busy for 95% of the time. What remains is the GPU's clock, which falls when they
# draw much power. At $d = 64$ neither they nor the exp unit is busy for more than two thirds of the time. There a
# tile needs both units for the same number of clocks, so time is lost whenever one of them waits.

# %% [markdown]
# **Practise:** `ladder exercise start v12_item`. **Read on:** the READMEs of [v12](../stages/v12_order/README.md),
# [v12b](../stages/v12b_counter/README.md) and [v12c](../stages/v12c_end_aligned/README.md). **Next:** [13, the whole ladder, and a rung of your
# own](13_the_ladder.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/12_v12_order.ipynb).
