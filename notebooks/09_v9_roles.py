# %% [markdown]
# # 09 v9_roles, v10_pingpong, v11_persistent: who does what, and when
#
# Three rungs that compute what v8 computes, with the same instructions. What they change is the order in which things
# happen. The counts hardly move; the time does.

# %% tags=["colab", "remove-cell"] jupyter={"source_hidden": true}
# Installs the project where it is not there yet, as on Colab.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("ladder") is None:
    project = "flash-ladder @ git+https://github.com/flash-ladder/flash-ladder"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", project], check=True)

# %%
# %load_ext ladder.lessons
import ladder
from ladder import lessons

# %% [markdown]
# ## v9: roles
#
# A *producer* asks for tiles and never computes. *Consumers* compute and never ask. The producer is one thread of a
# warpgroup of its own, and needs few registers. A launch gives every thread the same number, but `setmaxnreg` moves
# registers between warpgroups.

# %%
lessons.source("v9_roles", "decrease_registers<", "consume<")

# %% [markdown]
# ### Predict
#
# A block has 4 warpgroups, 512 threads, and an SM has 65,536 registers: 128 a thread. The producer's warpgroup goes down to
# 32. How many can each thread of the three consumers have?

# %%
registers_of_consumers = None
lessons.predict("registers_of_consumers", registers_of_consumers)

# %% [markdown]
# ## v10: taking turns
#
# All consumers begin at the same time with the same work, and so they keep step: all multiply, then all compute their
# softmax, and each time half of the SM is idle. Two rungs overlap softmax and products.
#
# v10_pingpong does so **between warpgroups**: they take turns at issuing products, like the ball in a game of ping-pong.
# v10b_overlap does so **within a warpgroup**: the product $S = QK^T$ of the next tile is issued together with
# $O = O + PV$ of this one, and only the first is waited for. O is one tile behind, and so is its rescaling:

# %%
lessons.source(
    "v10b_overlap", "// S = Q K^T, and O += P V of the tile before", "mul_row(o, o, rows.rescale);"
)

# %% [markdown]
# ## v11: blocks that stay
#
# A block begins by waiting for its first Q and K, and ends by storing O. Meanwhile nothing else runs on the SM. v11
# launches one persistent block per SM, which takes one work item after the other. So the next Q is prefetched during
# the current work item.
#
# v12 chooses their order: with a causal mask from the longest to the shortest, so that all blocks end nearly together,
# and with few heads at a time, so that their K and V stay in the L2 cache.
#
# ## Counted

# %%
rungs = ["v8_tma", "v9_roles", "v10_pingpong", "v10b_overlap", "v11_persistent", "v12_order"]
table = ladder.compare(ladder.Problem(1, 2, 256, 256, 64), rungs, backend="emulator")
lessons.counts(table)

# %% [markdown]
# The tensor cores have the same work. What these rungs change is when it is done, and counting cannot show that.
#
# ## Timed
#
# TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16, in one run (`results/h200/speed.csv`; v11's README has five):

# %%
lessons.measured(["v8_tma", "v9b_three_consumers", "v10b_overlap", "v12_order", "torch cuDNN"])

# %% [markdown]
# At $d = 64$ the exponentials take as long as the products: 16 a clock and SM against 4096 operations. Faster products
# alone would buy nothing there.
#
# **Practise:** the exercises begin with `v9_`, `v10_`, `v11_` and `v12_`.
# **Read on:** the READMEs of [v9](../stages/v9_roles/README.md), [v10](../stages/v10_pingpong/README.md) and
# [v11](../stages/v11_persistent/README.md), with what was tried and left out. **Next:**
# [12, the whole ladder, and a rung of your own](12_the_ladder.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/09_v9_roles.ipynb).
