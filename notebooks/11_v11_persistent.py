# %% [markdown]
# # 11 v11_persistent, v11b_store: blocks that stay
#
# Up to here a block computes one tile of queries and ends. Each block has a beginning and an end, in which its SM
# does little. These two rungs overlap them with other work.

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
import ladder
from ladder import lessons

# %% [markdown]
# ## The ends of a block
#
# v10b needs a whole SM for a block: nearly all registers and most of the shared memory. So nothing else runs there
# while it waits for its first Q, K and V, and while it stores O. The shorter the sequence, the more that matters. On
# an H200, $d = 64$, N = M = 1024 and 4096:

# %%
lessons.busy(["v9b_three_consumers", "v10b_overlap"], length=1024, head_dim=64)

# %%
lessons.busy(["v9b_three_consumers", "v10b_overlap"], length=4096, head_dim=64)

# %% [markdown]
# At N = 1,024 a block has only 8 tiles of keys. The tensor cores are busy for much less of the time than at N =
# 4,096, although they do the same kind of work.
#
# ## v11: one block per SM
#
# v11 launches as many blocks as there are SMs. Each one loops over *work items*: the queries of one tile of one head.
# Such blocks are called *persistent*. This is the producer's loop:

# %%
lessons.source(
    "v11_persistent",
    "/// The producer, a single thread.",
    "smem.v.load_async(turn, maps.v, key, item.kv_head);",
)

# %% [markdown]
# The producer does not stop at the end of an item. It loads the next Q into a second buffer, and the first tiles of K
# and V after it, while the consumers still compute the current item. With one block per SM there is shared memory for
# a third buffer of K and V, so it runs further ahead. (At $d = 256$ one Q and two buffers fit.)
#
# The consumers go through the same items with the same loop, each at its own pace. A consumer releases Q after its
# last S, so the load of the next Q overlaps its last product and its store of O.
#
# ### Predict
#
# Take B = 4, H = 16, N = 4,096, with 192 queries per work item, on the 132 SMs of an H200. Block b takes the items b,
# b + 132, b + 264 and so on. How many items has the block that has the most?

# %%
items_of_a_block = None
lessons.predict("items_of_a_block", items_of_a_block)

# %% [markdown]
# ## v11b: TMA stores O
#
# One part of the end is left. A lane holds two neighbouring elements of eight rows of O. Stored from registers, that
# is 4 bytes per lane, and four lanes fill half of a 32-byte sector. The next work item waits for it.
#
# After its last S a consumer does not need its Q any more. So it writes O into Q's buffer, in the same swizzle, and
# one thread issues a TMA *store* of the tile. The consumer goes on:

# %%
lessons.source("v11b_store", "// lower numbers are in_turn's", "tma::store_commit();")

# %% [markdown]
# Two barriers, and a fence between them. Before the first, other warps may still read Q. The fence makes the writes
# visible to TMA, which reads through the asynchronous proxy. Before the second, other warps may not have written yet.
#
# When may the producer load another Q into this buffer? When the store has *read* it. The consumer waits for that one
# item later, after it has issued the first product of that item: by then the store has long finished.

# %%
lessons.source("v11b_store", "// S = Q K^T and P = exp(S - m) of the first tile", "warpgroup::mma_wait(s);")

# %% [markdown]
# ## Counted

# %%
problem = ladder.Problem(1, 2, 384, 384, 128)
rungs = ["v10b_overlap", "v11_persistent", "v11b_store"]
table = ladder.compare(problem, rungs, backend="emulator").set_index("stage")
table[["wgmma_instructions", "tma_load_instructions", "tma_store_instructions", "global_sectors_st"]].T

# %% [markdown]
# v11 does what v10b does. v11b replaces the stores of O: what is left is lse. TMA stores count their own sectors
# (`tma_sectors_st`).
#
# ## What it bought
#
# TFLOP/s on an H200, H = 16, bf16: first B = 16, N = M = 1024, then B = 4, N = M = 4096:

# %%
lessons.measured([*rungs, "torch cuDNN"], length=1024)

# %%
lessons.measured([*rungs, "torch cuDNN"])

# %%
lessons.busy(rungs)

# %% [markdown]
# ## What is left
#
# At $d = 128$ the tensor cores are busy nearly all the time that an SM works. But not all SMs work to the end, and
# the L2 cache serves more bytes than necessary.
#
# **The bottleneck that the next rungs remove:** the order of the items. With a causal mask some take more than ten
# times as long as others.

# %% [markdown]
# **Practise:** `ladder exercise start v11_keys`. **Read on:** the READMEs of
# [v11](../stages/v11_persistent/README.md), with what was tried and left out, and of
# [v11b](../stages/v11b_store/README.md). **Next:** [12, which work comes first](12_v12_order.ipynb). Run this lesson
# [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/11_v11_persistent.ipynb).
