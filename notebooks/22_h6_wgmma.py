# %% [markdown]
# # 22 h6_wgmma: the producer reads the mask
#
# h2's products use `mma.sync`, which reaches two thirds of what Hopper's tensor cores can do (lesson 07). v11 uses
# `wgmma`, a producer warp, consumers that take turns, and persistent blocks. HSTU attention fits that scheme, and
# needs less: no maximum, no row sum, no rescaling. What is new is the mask, and sequences that end in the middle of a
# tensor.

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
lessons.source("h6_wgmma", "struct alignas(8) Visit {", "constexpr Visit kNoTile")

# %% [markdown]
# Without intervals lane c checks the rows of consumer c. As in h2, the first and the last row suffice. Two ballots
# collect one bit per consumer:

# %%
lessons.source("h6_wgmma", "const int row = first + 64 * lane_id();", "visit.cut = __ballot_sync")

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
lessons.source("h6_wgmma", "const Visit visit = look_at(mask, first, last, key);", "k_turn.advance();")

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
# The table compares h2 and h6 on a jagged batch with targets. A consumer's `wgmma` reads K and V from shared memory,
# so `ldmatrix` is gone. One TMA load serves 192 queries, and its sectors are counted separately:

# %%
problem = HstuProblem(heads=2, head_dim=64, q_lens=(300, 100), targets=(50, 10))
table = ladder.compare(problem, ["h2_masks", "h6_wgmma"], backend="emulator").set_index("stage")
columns = ["mma_instructions", "wgmma_instructions", "ldmatrix_instructions", "tma_load_instructions"]
table[[*columns, "global_sectors_ld"]].T

# %% [markdown]
# ## What it bought
#
# These are TFLOP/s on an H200 in bf16, over the pairs that the mask shows:

# %%
lessons.measured_hstu(["h1_silu", "h2_masks", "h6_wgmma"])

# %% [markdown]
# h6 gains 18 to 39% over h2 at $d = 64$, 57 to 103% at $d = 128$, and 111% at $d = 256$. At $d = 64$ one special
# function per weight takes 512 clocks for a tile of 64 x 128, and its products also take 512. So both units are
# needed all the time. The turns overlap one consumer's silu with another one's products.
#
# **What is left:** h6 builds on v11, so its order of work items is static. A counter as in v12b was not tried here,
# and the gradients do not use `wgmma` yet.

# %% [markdown]
# **Practise:** the exercises begin with `h6_`. **Read on:** the rung's [README](../stages/h6_wgmma/README.md).
# **Next:** [23, several GPUs](23_context_parallel.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/22_h6_wgmma.ipynb).
