# %% [markdown]
# # 22 h5b_wgmma to h7d_bias: the producer reads the mask
#
# h2's products use `mma.sync`, which reaches two thirds of what Hopper's tensor cores can do (lesson 07). v11 uses
# `wgmma`, a producer warp, consumers that take turns, and persistent blocks. HSTU attention fits that scheme, and
# needs less: no maximum, no row sum, no rescaling. h5b_wgmma is v11 with silu, over sequences that end in the middle of a
# tensor, and with a causal mask. h6_wgmma has the masks of h2. Two smaller rungs follow: h6b_store and
# h7_tile_scheduler. h7d_bias adds the bias of lesson 20.

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
from ladder.operations import HstuProblem

# %% [markdown]
# ## Who reads the mask?
#
# In h2 all warps classify each tile of keys: skip it, use it, or mask it. That takes registers in every thread. h6
# has a producer warp that is otherwise idle between two loads. It reads the mask for all consumers, and writes a note
# (`Visit`) beside each tile:

# %%
lessons.source("h6", "struct alignas(8) Visit {", "constexpr Visit kNoTile")

# %% [markdown]
# Without intervals lane c checks the rows of consumer c. As in h2, the first and the last row suffice. Two ballots
# collect one bit per consumer:

# %%
lessons.source("h6", "const int row = first + 64 * lane_id();", "visit.cut = __ballot_sync")

# %%
# %exercise h6_look

# %% [markdown]
# ### Predict
#
# Three consumers have the queries 192 to 255, 256 to 319 and 320 to 383. The mask is causal, and the tile has the
# keys 256 to 383. How many consumers multiply it?

# %%
consumers_that_multiply = None
lessons.predict("consumers_that_multiply", consumers_that_multiply)

# %% [markdown]
# The note needs no barrier of its own: the mbarrier phase that publishes the tile also publishes the note. A consumer
# waits for a tile and reads its two bits. Then it multiplies, masks or releases the tile. The last note of a work
# item has no tile. If no consumer sees a tile, it is not loaded at all:

# %%
lessons.source("h6", "const Visit visit = look_at(mask, first, last, key);", "k_turn.advance();")

# %% [markdown]
# Most tiles that are cut are cut by the diagonal: there only the end of each row matters, and one comparison per
# element suffices. Only tiles that a window, a gap or intervals cut need 64-bit words as in h2.
#
# ## Where a sequence ends
#
# A TMA box has a fixed height. The last box of a sequence reaches into the next sequence of the tensor. Loading *keys*
# of that sequence would do no harm: their weights are masked to 0. Loading its *values* would: 0 times infinity or NaN
# is NaN, and another user's rows may hold either. TMA reads zeros past the end of the tensor, but not past the end of
# a sequence.
#
# The solution is to put the token dimension into the tensor map *twice*, with the same stride. Row r of a sequence of
# n tokens that begins at token f gets two coordinates:
#
# $$ (L - n + r,\; f + n), \qquad L = 2^{30} $$
#
# Their sum is L + f + r, which is L more than the token's number. The first one is below L exactly where r < n, and
# that is the check that TMA makes. One more dimension subtracts L again: L times its stride is $2^{64}$ minus the
# bytes of L tokens, and addresses wrap at $2^{64}$. So one map serves all sequences, and the host need not know their
# lengths.

# %%
L, WRAP, token_bytes = 2**30, 2**64, 16 * 64 * 2


def address(first, n, row):
    """The byte offset that TMA computes, and whether it reads there."""
    one, two = L - n + row, first + n
    back = WRAP // L - token_bytes  # the stride of the dimension that subtracts L tokens
    return (one * token_bytes + two * token_bytes + L * back) % WRAP, one < L


for row in (0, 99, 100):
    offset, reads = address(first=512, n=100, row=row)
    print(f"row {row:3} of a sequence of 100: token {offset // token_bytes}, {'read' if reads else 'zeros'}")

# %% [markdown]
# ## Counted
#
# The table compares h2 and h6 on a jagged batch with targets. A consumer's `wgmma` reads K and V from shared memory, so
# there is no `ldmatrix`. One TMA load serves 192 queries, and its sectors are counted separately:

# %%
problem = HstuProblem(heads=2, head_dim=64, q_lens=(300, 100), targets=(50, 10))
table = ladder.compare(problem, ["h2", "h6"], backend="emulator").set_index("stage")
columns = ["mma_instructions", "wgmma_instructions", "ldmatrix_instructions", "tma_load_instructions"]
table[[*columns, "global_sectors_ld"]].T

# %% [markdown]
# ## What it bought
#
# These are TFLOP/s on an H200 in bf16. They count the pairs of a causal mask, whatever the mask:

# %%
lessons.measured_hstu(["h1", "h2", "h6"])

# %% [markdown]
# h6 gains 18 to 39% over h2 at $d = 64$, 57 to 103% at $d = 128$, and 111% at $d = 256$. At $d = 64$ one special
# function per weight takes 512 clocks for a tile of 64 x 128, and its products also take 512. So both units are
# needed all the time. Ping-pong overlaps one consumer's silu with another consumer's products.
#
# **What is left:** h6 builds on v11. Attention has gone on to v12 with four ideas: asynchronous stores of O, a dynamic
# tile scheduler, tiles aligned to the last query, and small groups of heads. The rest of this lesson takes them to
# jagged batches, in two rungs.

# %% [markdown]
# ## h6b_store: store warps
#
# In h6 a consumer stores O itself, and begins its next work item afterwards. As in v11b, TMA can store O from the shared
# memory of Q during the next item. But the buffer may be released only after TMA has read it. At $d = 64$ a consumer has
# no register left to keep track of a pending store. So each consumer has a *store warp*, one of the three warps of the
# producer's warpgroup that were idle:

# %%
lessons.source("h6b", "smem.o_full[turn.buffer][consumer].wait", "smem.q.release(turn);")

# %% [markdown]
# O is jagged like Q: the last tile of a sequence reaches into the next one. The tensor map of O has the token dimension
# twice, too, so TMA stores only rows that exist.
#
# ## h7_tile_scheduler: v12's tile scheduler on jagged batches
#
# In h6 block b has fixed items. The producer finds out what an item costs only when it reads the mask: targets and
# windows leave out tiles, and sequences differ in length. So one block may finish long before another. h7 has the tile
# scheduler of v12, in three parts. First, as in v12b, a block takes its next item from a counter in global memory:

# %%
lessons.source("h7", "__device__ int next() const {", "return uniform(number);")

# %% [markdown]
# The host does not know the lengths. For each sequence it counts the items of the longest sequence. So some items
# have no queries. The producer skips them, but the counter counts them: only then it is 0 again after the last item,
# and ready for the next launch. Consumers and store warps do not see the counter. The producer writes the item beside
# Q, and the mbarrier that publishes Q publishes the item.
#
# ### The ragged tile comes first
#
# A sequence of 4,096 queries has 21 tiles of 192 rows, and 64 more rows. In h6 the tile with 64 rows is the last tile,
# which sees all keys under a causal mask: one consumer works, and two have no rows. As in v12c, tiles end with the
# sequence's last query instead. Then the ragged tile is the first tile, and sees 64 keys:

# %%
lessons.source("h7", "__device__ static int first_row(int q_len) {", "A::block_rows;")

# %% [markdown]
# Its first row is negative. In a jagged tensor the rows before a sequence belong to the sequence before it. So nothing is
# loaded or stored for a consumer without rows, and the mbarrier of Q expects fewer bytes:

# %%
lessons.source("h7", "full.arrive_and_expect(", "item.row + 64 * c, queries, full);")

# %% [markdown]
# ### K and V stay in the L2 cache
#
# If the longest items of *all* heads came first, the blocks would read K and V of all heads at the same time. In a
# batch of 4 x 4,096 tokens with 16 heads of $d = 128$ these take 128 MB. The L2 cache of an H100 has 50 MB. So groups
# of 16 heads follow each other, and the longest items come first only within each group. When all items of a group are
# taken, blocks take items of the next group, so the load stays balanced. `group_heads` is at most 16, and less if K and
# V of so many heads take more than 32 MB:

# %%
# %exercise h7_item

# %% [markdown]
# ## What they bought
#
# These are TFLOP/s on an H100 in bf16 in bursts of launches, all from one run. They count the pairs of a causal mask. The
# last two columns are public kernels: the Triton kernels of generative-recommenders with TMA, and the kernels for Hopper
# of recsys-examples. Where a kernel does not compute a mask, its cell is empty.

# %%
lessons.measured_hstu_peers(
    [
        "h6",
        "h6b",
        "h7",
        "generative-recommenders, TMA",
        "recsys-examples",
    ]
)

# %% [markdown]
# In the median of the four problems of each $d$:
#
# | from | to | d = 64 | d = 128 |
# | --- | --- | ---: | ---: |
# | h6 | h6b | +6% | +2% |
# | h6b | h7 | +8% | +19% |
#
# With one part added after another, the counter gains 3% and 2%, tiles that end with the last query 2% and 2%, and
# groups of heads 3% and 13%. With groups of targets at $d = 128$, groups of heads gain 40%, because K and V of 128
# heads take 128 MB. At 4 x 2,048 tokens and $d = 64$ all heads take 32 MB, and groups gain nothing.
#
# ## h7d_bias: a bias by TMA
#
# In h3 (lesson 20) the accumulator of $QK^T$ starts with the bias, so no instruction adds it. `wgmma` adds to its
# accumulator, too. In h7d TMA loads a tile of the bias per consumer, 64 rows and 64 keys, into a ring beside the rings
# of K and V:

# %%
lessons.source("h7d", "smem.bias.wait_empty(bias_turn);", "bias_turn.advance();")

# %% [markdown]
# `first` is the position of the item's first query, and `key` the tile's first key. The bias is not jagged: it is a
# matrix of positions per sequence and head, so its tensor map has three dimensions.
#
# The consumer converts the tile to fp32, into the registers of S. Then the buffer is not needed. When may TMA
# load the next tile into it?

# %%
# %exercise h7d_release

# %% [markdown]
# The buffer of K is released only after the product. So at the first tiles of an item the bias is loaded up to three
# tiles ahead, and K two. K and V come from the L2 cache, but a bias per head comes from DRAM. Its ring leaves less room
# for tiles: they have 64 keys instead of 128 at $d = 64$, and of 80 at $d = 128$. These are TFLOP/s on an H100 in
# bursts, at 4 x 2,048 tokens with a causal mask and a bias for each of 16 heads:
#
# | | d = 64 | d = 128 |
# | --- | ---: | ---: |
# | h3_rab | 171 | 247 |
# | h7d_bias | 249 | 409 |
#
# At $d = 64$ a byte of the bias serves 128 operations (lesson 20), so h7d reads at least 1.95 TB/s of it. An H100 reads at most
# 3.35 TB/s.
#
# **What is left:** the gradients do not use `wgmma` yet. That is the next lesson.

# %% [markdown]
# **Practise:** the exercises begin with `h6_`, `h7_` and `h7d_`. **Read on:** the READMEs of
# [h6_wgmma](../stages/hstu/h6_wgmma/README.md), [h7_tile_scheduler](../stages/hstu/h7_tile_scheduler/README.md) and
# [h7d_bias](../stages/hstu/h7d_bias/README.md). **Next:** [22b, the gradients on
# wgmma](22b_h8_wgmma_gradients.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/22_h6_wgmma.ipynb).
