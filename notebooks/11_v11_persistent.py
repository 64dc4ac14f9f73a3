# %% [markdown]
# # 11 v11_persistent, v11b_store: blocks that stay
#
# Up to here a block computes one tile of queries and ends. At its beginning and at its end its SM does little. These
# two rungs overlap both with other work.

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
# A block of v10b takes nearly all registers and most of the shared memory of its SM. So nothing else runs there while
# the block waits for its first Q, K and V, and while it stores O. This matters most for short sequences. These are
# two tables of an H200 at $d = 64$, first for N = M = 1024, then for 4096:

# %%
lessons.busy(["v9", "v10b"], length=1024, head_dim=64)

# %%
lessons.busy(["v9", "v10b"], length=4096, head_dim=64)

# %% [markdown]
# At N = 1,024 a block has only 8 tiles of keys. In v10b the tensor cores are busy for 43% of the time there, and for
# 60% at N = 4,096. The work per tile is the same.
#
# ## v11: one block per SM
#
# v11 launches as many blocks as there are SMs. Each block loops over *work items*. A work item is one tile of queries
# of one head. Such blocks are called *persistent*. This is the producer's loop:

# %%
lessons.source(
    "v11",
    "/// The producer, a single thread.",
    "smem.v.load_async(turn, maps.v, key, item.kv_head);",
)

# %% [markdown]
# The producer does not stop at the end of an item. While the consumers still compute, it prefetches the next Q into a
# second buffer. Then it prefetches the next item's first tiles of K and V. K and V also have a third buffer now, so
# the producer runs further ahead. Its shared memory was unused before, since an SM has only one block. (At $d = 256$
# one Q and two buffers of K and V fit.)
#
# The consumers go through the same items with the same loop, each at its own pace. A consumer releases Q after its
# last S. So the load of the next Q overlaps the consumer's last product and its store of O.
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
# One part of the end is left: the store of O. Per instruction a warp stores parts of eight rows, and each lane two
# neighbouring elements, 4 bytes. So the four lanes of a row fill half of a 32-byte sector. The next work item waits
# for these stores.
#
# After its last S a consumer does not need its Q any more. So it writes O into Q's buffer, in the same swizzle, and
# one thread issues a TMA *store* of the tile. The consumer goes on:

# %%
lessons.source("v11b", "// lower numbers are in_turn's", "tma::store_commit();")

# %% [markdown]
# Each consumer has its own tile of Q, 64 rows, and its own number of a named barrier. So only the four warps of one
# consumer meet at the two barriers; the other consumers continue. The first barrier waits until these four warps have
# finished their products with Q. Then each warp writes its 16 rows of O. Each thread executes the fence, which makes
# its own writes visible to TMA: like `wgmma`, TMA reads through the asynchronous proxy. The second barrier waits
# until all four warps have written.
#
# The producer may load another Q into the buffer only after the stores of all consumers have *read* it. Only the thread
# that issued a store can wait for it. It does so one item later, after the first product of that item has been issued.
# By then the store has usually finished. Then its warp releases the buffer. The other three warps of the consumer
# release it without waiting, since the buffer is empty only when all warps have released it:

# %%
lessons.source("v11b", "// S = Q K^T and P = exp(S - m) of the first tile", "warpgroup::mma_wait(s);")

# %% [markdown]
# ## Counted

# %%
problem = ladder.Problem(1, 2, 384, 384, 128)
rungs = ["v10b", "v11", "v11b"]
table = ladder.compare(problem, rungs, backend="emulator").set_index("stage")
table[["wgmma_instructions", "tma_load_instructions", "tma_store_instructions", "global_sectors_st"]].T

# %% [markdown]
# v11's counts are v10b's. In v11b threads store only lse to global memory. TMA counts the sectors of its stores
# separately (`tma_sectors_st`).
#
# ## What it bought
#
# These are TFLOP/s on an H200 with H = 16 in bf16, first at B = 16, N = M = 1024, then at B = 4, N = M = 4096:

# %%
lessons.measured([*rungs, "torch cuDNN"], length=1024)

# %%
lessons.measured([*rungs, "torch cuDNN"])

# %%
lessons.busy(rungs)

# %% [markdown]
# ## What is left
#
# At N = 1,024 v11b gains 16 to 21% over v10b. At N = 4,096 it gains 4 to 5% without a mask, and loses 1 to 3% with a
# causal mask.
#
# At $d = 128$ the tensor cores are busy for 95% of the time in which an SM has work. But some SMs finish early, and
# the L2 cache handles more sectors than necessary.
#
# **The bottleneck that the next rungs remove:** the order of the items. With a causal mask some items take more than
# ten times as long as others.

# %% [markdown]
# **Practise:** `ladder exercise start v11_keys`. **Read on:** the READMEs of
# [v11](../stages/v11_persistent/README.md), with what was tried and left out, and of
# [v11b](../stages/v11b_store/README.md). **Next:** [12, which work comes first](12_v12_order.ipynb). Run this lesson
# [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/11_v11_persistent.ipynb).
