# %% [markdown]
# # 08 v8_tma: one thread loads a tile
#
# With `cp.async` every thread computes two addresses for its 16 bytes, one in global and a swizzled one in shared
# memory, and checks whether they are out of range. Hopper has a unit for that, the *tensor memory accelerator* (TMA).

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
from ladder.lessons import gallery
from ladder.operations import get_operation

# %% [markdown]
# ## What v7b waits for
#
# This is how busy an H200 is in v7b at $d = 128$, and what its warps wait for:

# %%
lessons.busy(["v7_wgmma", "v7b_large_tiles"])

# %% [markdown]
# No unit is busy all the time. All warpgroups meet at a block barrier before each tile, so the fastest one waits for
# the slowest. And a large part of the instructions computes addresses.
#
# ## A tensor map, and a load
#
# The host describes each tensor once, in a *tensor map*: sizes, strides, the shape of a tile, the swizzle. In the
# kernel one thread names a tile by its coordinates. The whole tile arrives swizzled, with zeros past the end of the
# tensor.

# %%
lessons.source("v8_tma", "const auto prefetch = [&](int key) {", "};")

# %%
# %exercise v8_ask

# %% [markdown]
# ## When has a tile arrived?
#
# A barrier in shared memory, an **mbarrier**, counts the threads that arrive and the bytes that are loaded. When all
# have arrived, its *phase* completes, and the threads that wait for that phase go on. Each buffer has two of them:
#
# | barrier | a phase completes when | who waits for it |
# |---|---|---|
# | `full` | the announced bytes have been loaded | all warps, before they multiply |
# | `empty` | the buffer has been released | the thread that issues loads, before the next load |
#
# Phases have no number, only a parity, 0 or 1, which alternates. A waiter must know which phase it means. Being off
# by one is the classic mistake: you read a tile that has not arrived, or wait forever. So `Turn` counts both, the
# buffer and the parity:

# %%
lessons.source("v8_tma", "template <int kBuffers> struct Turn {", "};", file="tiles/ring.h")

# %% [markdown]
# The loop has no block barrier any more. A warpgroup that is ahead goes on to the next tile:

# %%
lessons.source("v8_tma", "for (; key < keys; key += A::keys, turn.advance()) {", "softmax(")

# %%
# %exercise v8_release

# %% [markdown]
# Each ring of buffers is a member of one struct in shared memory: its tiles, then its mbarriers, 8 bytes each. A tile
# begins at a multiple of 1,024 bytes, the period of the swizzle; so a few bytes are lost between the rings:

# %%
gallery.memory("v8_tma", head_dims=(64, 128))

# %% [markdown]
# If a kernel like this hangs, `ladder check` says which barrier waits for how many arrivals or bytes, and which warp
# has not arrived.
#
# ## Predict
#
# A block has three warpgroups of 64 queries, and tiles of 128 keys. How many TMA loads are there for $B = 1$, $H =
# 3$, $N = 192$, $M = 200$?

# %%
tma_loads = None
lessons.predict("tma_loads", tma_loads)

# %% [markdown]
# ## Measured

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
lessons.counts(ladder.compare(problem, ["v7b_large_tiles", "v8_tma"], backend="emulator"))

# %% [markdown]
# No thread loads from global memory any more. Computing addresses was a large part of the instructions per score:

# %%
gallery.instructions(("v6c_lane_reductions", "v7b_large_tiles", "v8_tma"))

# %% [markdown]
# What it bought, TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16:

# %%
lessons.measured(["v7_wgmma", "v7b_large_tiles", "v8_tma", "torch cuDNN"])

# %% [markdown]
# ## An mbarrier in the next block
#
# An mbarrier also counts bytes that another block sends. Hopper can start blocks as a *cluster*, on neighbouring SMs and
# at the same time. Their shared memory is then one *distributed shared memory*: `mapa` turns an address of one's own
# into the same address in another block, and `st.async` stores there and adds the bytes to an mbarrier beside them.
#
# No rung needs it: no row of attention is too long for one block. A layer norm of wide rows does. In
# [this example](../examples/layer_norm_cluster/kernel.cu) two blocks hold half of each row and exchange their sums:

# %%
lessons.drawing("cluster")

# %%
lessons.source("layer_norm_cluster", "if (lane == 0)", "vec.values[i][slot] +=", file="tiles/cluster.h")

# %% [markdown]
# What the exchange costs, beside the example in which a warp holds whole rows:

# %%
matrix = get_operation("layer_norm").problem(rows=128, cols=256)
lessons.counts(ladder.compare(matrix, ["layer_norm", "layer_norm_cluster"], backend="emulator"))

# %% [markdown]
# Global memory is read as often as before. The 64 shared loads are the sums that arrive: 8 warps per block, two sums
# per row, 16 rows in two loads. Each warp waits for 64 bytes, which its counterpart sends, and for nothing else. The
# cluster needs a barrier before the first message. Without it, a block may send to an mbarrier that the other block
# has not initialised.

# %% [markdown]
# ## What is left

# %%
lessons.busy(["v7b_large_tiles", "v8_tma"])

# %% [markdown]
# **The bottleneck that the next rung removes:** the thread that issues loads also multiplies. It issues the next load
# once per tile, after it has waited for the slowest warp, and its warpgroup waits with it.

# %% [markdown]
# **Practise:** the exercises of this rung begin with `v8_`. **Read on:** the rung's
# [README](../stages/v8_tma/README.md). **Next:** [09, a producer and consumers](09_v9_roles.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/08_v8_tma.ipynb).
