# %% [markdown]
# # 08 v8_tma: one thread loads a tile
#
# With `cp.async` every thread computes two addresses per 16 bytes: one in global memory, and a swizzled one in shared
# memory. It also checks whether they are out of range. Hopper has a unit for this work, the *tensor memory
# accelerator* (TMA).

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
# ## What v7 waits for
#
# This is how busy an H200 is in v7 at $d = 128$, and what its warps wait for:

# %%
lessons.busy(["v6", "v7"])

# %% [markdown]
# No unit is busy for more than 54% of the time. All warpgroups meet at a block barrier before each tile, so the
# fastest one waits for the slowest. And a large part of the instructions computes addresses.
#
# ## A tensor map, and a load
#
# The host describes each tensor once, in a *tensor map*: sizes, strides, the shape of a tile, the swizzle. In the
# kernel one thread names a tile by its coordinates. TMA loads the whole tile and swizzles it. Rows past the end of the
# tensor become zeros, so the last tile of a tensor takes one load of the same number of bytes. The swizzle only changes
# the order of the eight 16-byte segments within 128 bytes. So each row of 128 bytes still covers all 32 banks once.
#
# One load of TMA is one tile. A tile of K or V has 128 keys. A tile of Q has 64 rows, and each warpgroup has its own.

# %%
lessons.source("v8", "const auto prefetch = [&](int key) {", "};")

# %%
# %exercise v8_ask

# %% [markdown]
# ## When has a tile arrived?
#
# K and V have a *ring* of buffers each: the buffers are used one after another, again and again. An **mbarrier** is a
# barrier in shared memory. It counts threads that arrive, and bytes that are loaded. When all expected arrivals and
# bytes are complete, its *phase* completes. Then the threads that wait for this phase go on, and the next phase begins.
# Each buffer has two mbarriers:
#
# | barrier | a phase completes when | who waits for it |
# |---|---|---|
# | `full` | the announced bytes have been loaded | all warps, before they multiply |
# | `empty` | the buffer has been released | the thread that issues loads, before the next load |
#
# Just before a thread issues the loads of a tile, it announces their bytes to `full`. This announcement is also the one
# arrival that a phase of `full` expects. Each load names this mbarrier. TMA subtracts the bytes that it has written
# from those that were announced. At 0 the phase completes.
#
# The announced number must be exact. If too many bytes are announced, the phase never completes. If too few are
# announced, the count may be 0 before the whole tile has arrived: then warps multiply what was in the buffer before. Or
# the count falls below 0, and the phase never completes.
#
# TMA writes through the asynchronous proxy, and `wgmma` reads through it. So a warp that has waited for `full` may
# issue its products, without `fence_async_proxy`.
#
# A phase has no number, only a *parity*, 0 or 1, which alternates. A wait names the parity of the phase that must
# complete. Being off by one is the classic mistake: the wait returns before the tile has arrived, or never. So `Turn`
# counts both the buffer and the parity:

# %%
lessons.source("v8", "template <int kBuffers> struct Turn {", "};", file="tiles/ring.h")

# %% [markdown]
# At first all buffers are empty, though no warp has released them. So the first wait for `empty` must return at once.
# `wait_empty` therefore names the other parity, `turn.parity ^ 1`. In the first round this is the phase before the
# first phase, which counts as complete.
#
# The loop has no block barrier any more. A warpgroup that is ahead goes on to the next tile:

# %%
lessons.source("v8", "for (; key < keys; key += A::keys, turn.advance()) {", "softmax(")

# %%
# %exercise v8_release

# %% [markdown]
# All rings are members of one struct in shared memory. A ring holds its tiles first, then its mbarriers, 8 bytes
# each. Tiles begin at multiples of 1,024 bytes, the period of the swizzle. So a few bytes between the rings are
# unused:

# %%
gallery.memory("v8", head_dims=(64, 128))

# %% [markdown]
# If a kernel like this hangs, `ladder check` reports the barrier, how many arrivals or bytes it waits for, and which
# warp has not arrived.
#
# ## Predict
#
# At $d = 64$ a block has three warpgroups of 64 queries each. It loads Q once, and every tile of K and V once. How many
# TMA loads do all blocks issue in all for $B = 1$, $H = 3$, $N = 192$, $M = 200$?

# %%
tma_loads = None
lessons.predict("tma_loads", tma_loads)

# %% [markdown]
# ## Counted

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
lessons.counts(ladder.compare(problem, ["v7", "v8"], backend="emulator"))

# %% [markdown]
# No thread loads from global memory any more, so `sectors read` is 0. TMA's reads are counted as `tma_sectors_ld`. In
# v7, computing addresses is a large part of the instructions per score:

# %%
gallery.instructions(("v6", "v7", "v8"))

# %% [markdown]
# ## What it bought
#
# These are TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16:

# %%
lessons.measured(["v7", "v8", "torch cuDNN"])

# %% [markdown]
# TMA gains 21 to 24% over v7.
#
# ## An mbarrier in the next block
#
# This section is an aside, which the next lessons do not need. An mbarrier also counts bytes that another block
# sends. Hopper can start blocks as a *cluster*, on neighbouring SMs and at the same time. Together, their shared
# memories are a *distributed shared memory*. `mapa` turns an address in a block's own shared memory into the same
# address in another block. `st.async` stores there, and adds the bytes to an mbarrier beside them.
#
# No rung uses clusters, because a row of attention is never too long for one block. A row of a wide layer norm can
# be. In [this example](../examples/layer_norm_cluster/kernel.cu) two blocks hold half of each row and exchange their
# sums:

# %%
lessons.drawing("cluster")

# %%
lessons.source("layer_norm_cluster", "if (lane == 0)", "vec.values[i][slot] +=", file="tiles/cluster.h")

# %% [markdown]
# The table shows the cost of the exchange, beside an example in which a warp holds whole rows:

# %%
matrix = get_operation("layer_norm").problem(rows=128, cols=256)
lessons.counts(ladder.compare(matrix, ["layer_norm", "layer_norm_cluster"], backend="emulator"))

# %% [markdown]
# Global memory is read as often as before. The 64 shared loads read the sums that arrive: two blocks of 8 warps, two
# sums per row, and two loads for the 16 rows of a warp. Each warp waits only for the 64 bytes that its counterpart in
# the other block sends. The cluster needs a barrier before the first message. Without it, a block may send to an
# mbarrier that the other block has not initialised.

# %% [markdown]
# ## What is left

# %%
lessons.busy(["v7", "v8"])

# %% [markdown]
# The tensor cores are now busy for 66% of the time. The first stall reason is still *barrier*, although the loop has
# no block barrier: v8's machine code has one `BAR.SYNC`, before the loop. In the loop two instructions concern a whole
# warpgroup: `WARPGROUP.ARRIVE` before each product, and `WARPGROUP.DEPBAR`, which waits for the product. So *barrier*
# here probably means the wait for products. In v10b, which waits later for its products, this stall is about a quarter
# of v8's (`results/h200/bounds.csv`).
#
# **The bottleneck that the next rung removes:** the thread that issues loads also multiplies. Once per tile it waits
# until the slowest warp has released the buffer. Its warpgroup waits with it, and the next load is late.

# %% [markdown]
# **Practise:** the exercises of this rung begin with `v8_`. **Read on:** the rung's
# [README](../stages/v8_tma/README.md). **Next:** [09, a producer and consumers](09_v9_roles.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/08_v8_tma.ipynb).
