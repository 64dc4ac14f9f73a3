# %% [markdown]
# # 05 v5_async: copies under the products
#
# v4 loads a tile, waits for it, computes, waits for all workers, and loads the next one. While a tile is in flight
# the tensor cores are idle, and while they work nothing is in flight. This rung does both at once. You need lessons
# 02 (tensor cores) and 04 (tiles).

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

# %% [markdown]
# ## Issue and carry on
#
# An ordinary copy goes through a register: the thread loads 16 bytes from global memory, waits several hundred
# cycles, and stores them to shared memory. **`cp.async`** copies past the registers, and returns at once. Two more
# instructions belong to it:
#
# | in the kernel | PTX | what it says |
# |---|---|---|
# | `load_async(tile, ...)` | `cp.async` | issue this thread's 16-byte copies of the tile |
# | `async_commit()` | `cp.async.commit_group` | all copies that this thread has issued since the last commit form one group |
# | `async_wait<n>()` | `cp.async.wait_group n` | wait until all groups of this thread but the newest `n` have arrived |
#
# A thread waits for its own copies only. So `block::async_wait` ends with a barrier of the block: after it, the parts
# of all threads have arrived.

# %%
lessons.source("v5", "const auto prefetch =", "};")

# %% [markdown]
# ## Buffers
#
# A copy in flight needs a place of its own, so there are two *buffers*, each for a tile of K and one of V. In
# iteration $j$ the warps compute on tile $j$ while the copy of tile $j + 1$ goes into the buffer that iteration $j - 1$
# used:

# %%
gallery.buffers()

# %% [markdown]
# The beginning of the loop. Each line that is missing is an exercise:

# %%
lessons.source("v5", "for (int key = 0, now = 0;", "mma_ABt(s, q, k_smem[now]);")

# %% [markdown]
# Which copies must have arrived before a buffer is used? As it stands, no thread waits. The emulator lets copies land
# as late as they may, so a missing wait shows every time. On a GPU it may work by chance for years:

# %%
# %exercise v5_wait

# %% [markdown]
# ## What the second buffer costs
#
# It costs shared memory. This is the memory map of a block, in bytes, as the debugger sees it after the declarations.

# %%
gallery.memory("v5", head_dims=(64, 128))

# %% [markdown]
# A block can have 48 KiB, or more if the launch requests it: 99 KiB on an RTX 30 or 40, 163 on an A100, 227 on an
# H100. The rungs below v7 should run on all of them. At $d = 128$ v5 is 3 KiB below the limit of 99.
#
# - Q, O and S of 16 rows at $d = 128$ do not fit into the 128 registers that a thread of this block can have (65,536 of
#   the SM, shared by 512 threads). So Q stays in shared memory, 4,096 bytes per warp.
# - With two thirds of the memory taken by Q, the tiles of K and V must be small: 32 keys, and 48 at $d = 64$.
#
# Tile sizes are decided on such maps. Larger tiles mean fewer barriers per key. A third buffer would mean smaller tiles.

# %% [markdown]
# ## Predict
#
# Take one block of 256 queries and 960 keys at $d = 64$: 20 tiles of 48 keys. In v4 a warp reaches a barrier of its
# block 40 times: before a tile is overwritten, and after the new one is loaded. How many times in v5?

# %%
barriers = None
lessons.predict("barriers_of_v5", barriers)

# %% [markdown]
# ## Measured

# %%
rungs = ["v4", "v5"]
lessons.counts(ladder.compare(ladder.Problem(1, 2, 256, 256, 64), rungs, backend="emulator"))

# %% [markdown]
# The numbers of products and `ldmatrix` are v4's. There are no stores to shared memory, because the copies replace
# them. That is all that counting can show. An H200 shows the rest: TFLOP/s at B = 4, H = 16, N = M = 4096, bf16.

# %%
lessons.measured(rungs)

# %% [markdown]
# And on the GPU of this machine, if it has one:

# %%
lessons.times(rungs)

# %% [markdown]
# ## ptxas also overlaps
#
# `ldmatrix` also has a latency, about 30 clocks from shared memory. In the source of v2 each `ldmatrix` of K or V is
# followed by the two `mma` that use it, which would wait for it every time. ptxas reorders them. This is what it
# makes of a kernel's loop for `sm_90` at $d = 64$ (nvcc 13.0.88, `tools/measure/sass_order.py`):
#
# | | `ldmatrix` before the first `mma` | then |
# |---|---|---|
# | in the source | 1 | 2 mma, 1 ldmatrix, 2 mma, ... |
# | v2 | 6 | 5 mma, 1 ldmatrix, 2 mma, 1 ldmatrix, 6 mma, ... |
# | v4 | 10 | 10 mma, 1 ldmatrix, 4 mma, 1 ldmatrix, 10 mma, ... |
# | v6e | 9 | 6 mma, 1 ldmatrix, 6 mma, 1 ldmatrix, 2 mma, ... |
#
# So loads run some products ahead of their use, as `cp.async` runs a tile ahead, and the price is the same: a place for
# each load in flight, here registers. The reordering stops at barriers. A tile that has just been waited for cannot be
# loaded from earlier.
#
# ## Last rows first
#
# With a causal mask the last rows see the most keys: at $d = 64$ and N = 4096 the last block visits 86 tiles, and the
# first block 6. Blocks start in order. If the longest started last, they would run alone at the end, while the other
# SMs wait. So the rungs from v1b on count rows from the end:

# %%
lessons.source("v5", "const int block_row =")

# %% [markdown]
# **The bottleneck that the next rung removes:** the warps wait for their own arithmetic. Between the two products each
# score costs a multiplication, a maximum, a subtraction, an exponential and a sum.
#
# **Practise:** the exercises of this rung begin with `v5_`. **Read on:** the rung's
# [README](../stages/v5_async/README.md). **Next:** [06, fewer instructions per score](06_v6_late_scale.ipynb). Run
# this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/05_v5_async.ipynb).
