# %% [markdown]
# # 08 v8_tma: one thread asks
#
# With `cp.async` every thread computes where its 16 bytes lie, in global memory and, swizzled, in shared memory, and
# whether they are past the end. Hopper has a unit for that, the *tensor memory accelerator* (TMA).

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
from ladder.lessons import gallery

# %% [markdown]
# ## A map, and a request
#
# The host describes each tensor once, in a *tensor map*: sizes, strides, which tile is wanted, which swizzle. In the
# kernel one thread names a tile by its coordinates. It comes as a whole, swizzled, with zeros past the end of the
# tensor.

# %%
lessons.source("v8_tma", "const auto prefetch = [&](int key) {", "};")

# %% [markdown]
# ## Who knows that it has come?
#
# A barrier in shared memory, an **mbarrier**. It counts threads that arrive and bytes that come; when all are there,
# its *phase* ends, and whoever waits for that phase goes on. Each buffer has two:
#
# | barrier | a phase ends when | who waits for it |
# |---|---|---|
# | `full` | the bytes that were announced have come | all warps, before they multiply |
# | `empty` | every warp has said `release` | the thread that asks, before it asks again |
#
# Phases have no number, only a parity, 0 or 1, which alternates. Whoever waits must know which phase is meant. Being
# off by one is the classic mistake: you read a tile that has not come, or wait forever. So `Turn` counts both, the
# buffer and the parity:

# %%
lessons.source("v8_tma", "Turn<2> turn, fill_turn;", "fill_turn.advance();")

# %% [markdown]
# The loop has no block-wide barrier any more. A warpgroup that is ahead goes on into the next tile:

# %%
lessons.source("v8_tma", "for (; key < keys; key += A::keys, turn.advance()) {", "smem.v.release(turn);")

# %% [markdown]
# If a kernel like this hangs, `ladder check` says which barrier waits for how many arrivals or bytes, and who has not come.
#
# ## Predict
#
# A block has three warpgroups of 64 queries and tiles of 128 keys. How many requests to TMA are there for $B = 1$, $H = 2$,
# $N = M = 256$?

# %%
tma_loads = None
lessons.predict("tma_loads", tma_loads)

# %% [markdown]
# ## Measured

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
lessons.counts(ladder.compare(problem, ["v7b_large_tiles", "v8_tma"], backend="emulator"))

# %% [markdown]
# Threads read nothing from global memory any more. Computing addresses was a good part of what they executed for each
# score:

# %%
gallery.instructions(("v6c_lane_reductions", "v7b_large_tiles", "v8_tma"))

# %% [markdown]
# What it buys, TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16:

# %%
lessons.measured(["v7b_large_tiles", "v8_tma", "torch cuDNN"])

# %% [markdown]
# **The bottleneck that the next rungs remove:** the thread that asks also multiplies. It comes round once a tile and then
# waits for the slowest warp, and its warpgroup waits with it.
#
# **Practise:** the exercises of this rung begin with `v8_`.
# **Read on:** the rung's [README](../stages/v8_tma/README.md). **Next:** [09, who does what, and when](09_v9_roles.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/08_v8_tma.ipynb).
