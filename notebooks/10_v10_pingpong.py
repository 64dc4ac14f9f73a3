# %% [markdown]
# # 10 v10_pingpong, v10b_overlap: softmax under products
#
# The tensor cores multiply. Other units compute the exponentials. Both stay busy only if each always has work. This
# takes two rungs: at $d = 128$ the first rung by itself loses.

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
# ## Two units, one at a time
#
# A consumer of v9 goes through four steps per tile. It issues S = Q Kᵀ and waits, computes its softmax, issues O +=
# P V, and waits. During the softmax it has no products in flight. During its products it computes no softmax. Two
# tables show how busy an H200 is at B = 4, H = 16, N = M = 4096, first for $d = 64$, then for $d = 128$:

# %%
lessons.busy(["v8", "v9"], head_dim=64)

# %%
lessons.busy(["v8", "v9"], head_dim=128)

# %% [markdown]
# At $d = 64$ the tensor cores are busy for 53% of the time, and the unit of the exponentials for 54%: as if only one
# of them worked at a time.
#
# ### Predict
#
# How long do the products of a tile take? The tensor cores of an SM do 4,096 operations per clock (a multiply-add is
# two). A consumer has 64 queries, a tile 80 keys, and $d = 128$. How many clocks do both products of this tile need?

# %%
clocks_of_products = None
lessons.predict("clocks_of_products", clocks_of_products)

# %% [markdown]
# ## v10: turns
#
# The first idea is to overlap **between consumers**. They take turns issuing products. While one consumer's products
# run, the others compute their softmax. This is called *ping-pong scheduling*, here with three players. A turn is
# passed at a *named barrier*, a numbered barrier for a part of the block. The next consumer waits at this barrier. The
# consumer that passes the turn on only arrives, and does not wait.

# %%
lessons.source("v10", "/// Waits for this warpgroup's turn.", "ptx::barrier_arrive(", file="tiles/roles.h")

# %% [markdown]
# In the loop a turn begins with O += P V and ends after S of the next tile has been issued:

# %%
lessons.source("v10", "// S = Q K^T", "smem.v.release(turn);")

# %% [markdown]
# ### The rescale, step by step
#
# Between S and O += P V of a tile, `softmax` rescales O if a row has a larger maximum. The debugger stops warp 0
# there, in its second tile of keys. A scale of 1 makes the logits large, so some maxima rise:

# %%
rises = lessons.line_of("v10", "max_over_lanes(m_new);")
lessons.debug(
    "v10",
    ladder.Problem(1, 1, 64, 256, 64, scale=1.0),
    [
        *(f"break {rises} if key > 0 && warp == 0", "continue", "print rows.m"),
        *("next 4", "print rescale", "tile o 4", "next 2", "tile o 4", "back"),
    ],
)

# %% [markdown]
# Four lanes hold a row of O, and a lane holds parts of two rows. So four lanes have the same two maxima and the same
# two factors. Where the maximum has not risen, the factor is 1 and the row stays as it is. `back` returns to the line
# before. The emulator executes a launch in the same order each time, so it can run to that moment again.

# %% [markdown]
# The first table shows what ping-pong gains, in TFLOP/s:

# %%
lessons.measured(["v9", "v10"])

# %%
lessons.busy(["v9", "v10"])

# %% [markdown]
# At $d = 64$ ping-pong gains 6 to 8%. At $d = 128$ it loses 6%: the tensor cores are busy for 72% of the time instead
# of 81%, and the warps wait longer at barriers. Look at the loop again: a consumer waits for its O before it issues
# its next S, and holds its turn meanwhile. Until then no other consumer may issue a product, so the tensor cores have
# no work between the two products.
#
# ## v10b: two products in one turn
#
# So the second idea is to overlap **within a consumer**. It issues S of the *next* tile and O += P V of *this* tile
# without a wait in between. It passes the turn on, and waits only for S. Then its softmax also runs under its own O +=
# P V.

# %%
lessons.source("v10b", "// S = Q K^T, and O += P V of the tile before", "const bool changed = softmax(")

# %%
# %exercise v10_in_turn

# %% [markdown]
# O is now one tile behind S. The first S is issued before the loop, and the last O += P V after it. Such a loop is
# *software-pipelined*. O may be rescaled only after the product in flight has been added.
#
# ## What happens when
#
# The picture shows the order of events in one block, as the emulator executes it. Above, in v9, the softmax of a
# consumer (orange) comes between its products (blue). Below, in v10b, it begins while the consumer's own O += P V is
# in flight, and the consumers issue in turn.

# %%
lessons.turns()

# %% [markdown]
# The next picture shows the same on an H200, in clocks. The three consumers of v9 find an order by themselves: while
# one computes its softmax, the tensor cores are free for the others. But each consumer has no products in flight
# during its own softmax.

# %%
lessons.timeline()

# %% [markdown]
# ## What it bought
#
# The counts are equal:

# %%
problem = ladder.Problem(1, 2, 384, 384, 64)
rungs = ["v9", "v10", "v10b"]
table = ladder.compare(problem, rungs, backend="emulator").set_index("stage")
table[["wgmma_instructions", "tma_load_instructions", "global_sectors_st"]].T

# %% [markdown]
# The speeds are not equal. These are TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16:

# %%
lessons.measured([*rungs, "torch cuDNN"])

# %%
lessons.busy(rungs)

# %% [markdown]
# ## What it costs, and what is left
#
# Without a mask, v10b gains 13% over v9 at $d = 64$, and 8% at $d = 128$. At $d = 128$ the tensor cores are busy for
# 88% of the time. With a causal mask it gains 11% at $d = 64$, and 4% at $d = 128$.
#
# It costs registers. In v9 P takes over the registers of S. In v10b P stays in use while the next S is computed, which
# takes 20 registers more per thread at $d = 128$. And the consumers depend on each other. Each consumer waits for the
# previous one, so a consumer takes its turn even for tiles that it does not need. A consumer without rows still
# computes the first tile, whose S is issued before the loop: a dummy tile.
#
# **The bottleneck that the next rung removes:** a block first waits for its Q and K, and at its end it stores O.
# Meanwhile nothing else runs on its SM.

# %% [markdown]
# **Practise:** the exercises begin with `v10_`. **Read on:** the READMEs of [v10](../stages/v10_pingpong/README.md)
# and [v10b](../stages/v10b_overlap/README.md). **Next:** [11, blocks that stay](11_v11_persistent.ipynb). Run this
# lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/10_v10_pingpong.ipynb).
