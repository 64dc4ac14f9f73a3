# %% [markdown]
# # 05 v5_async: copies under the products
#
# v4 brings a tile, waits for it, computes, waits for all workers, and brings the next one. While a tile is on its way
# the tensor cores have nothing to do, and while they work nothing is on its way. This rung does both at once. You need
# lessons 02 (tensor cores) and 04 (tiles).

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
# ## Issue and carry on
#
# An ordinary copy goes through a register: the thread loads 16 bytes from global memory, waits some hundred cycles,
# and stores them to shared memory. **`cp.async`** copies without a detour through registers, and returns at once. Two
# more instructions belong to it:
#
# | in the kernel | PTX | what it says |
# |---|---|---|
# | `load_async(tile, ...)` | `cp.async` | issue this thread's 16-byte copies of the tile |
# | `async_commit()` | `cp.async.commit_group` | all copies that this thread has issued since the last commit form one group |
# | `async_wait<n>()` | `cp.async.wait_group n` | wait until all groups of this thread but the newest `n` have arrived |
#
# A thread waits for its own copies only. So `block::async_wait` ends with a barrier of the block: after it,
# everybody's part has arrived.

# %%
lessons.source("v5_async", "const auto prefetch =", "};")

# %% [markdown]
# ## Buffers
#
# What is on its way needs a place of its own, so there are two *buffers*, each for a tile of K and one of V. In
# iteration $j$ the warps compute on tile $j$ while the copy of tile $j + 1$ goes into the buffer that iteration $j - 1$
# used:

# %%
gallery.buffers()

# %% [markdown]
# The beginning of the loop. Each line that is missing is an exercise:

# %%
lessons.source("v5_async", "for (int key = 0, now = 0;", "mma_ABt(s, q, k_smem[now]);")

# %% [markdown]
# Which copies must have arrived before a buffer is used? As it stands, nobody waits. The emulator lets copies land as
# late as they may, so that a missing wait shows every time, while on a GPU it may go well for years:

# %%
# %exercise v5_wait

# %% [markdown]
# ## Predict
#
# Take one block of 256 queries and 960 keys at $d = 64$: 20 tiles of 48 keys. In v4 a warp comes to a barrier of its block
# 40 times: before a tile is overwritten, and when the new one is there. How many times in v5?

# %%
barriers = None
lessons.predict("barriers_of_v5", barriers)

# %% [markdown]
# ## Measured

# %%
rungs = ["v4_tk_tiles", "v5_async"]
lessons.counts(ladder.compare(ladder.Problem(1, 2, 256, 256, 64), rungs, backend="emulator"))

# %% [markdown]
# There are exactly as many products and `ldmatrix` as in v4. Gone are the stores to shared memory, which the copies do
# by themselves. That is all that counting can show: the emulator knows no time. An H200 does: TFLOP/s at B = 4, H =
# 16, N = M = 4096, bf16.

# %%
lessons.measured(rungs)

# %% [markdown]
# And on the GPU of this machine, if it has one:

# %%
lessons.times(rungs)

# %% [markdown]
# ## Last rows first
#
# With a causal mask the last rows see the most keys: at $d = 64$ and N = 4096 the last block has 86 tiles to visit and
# the first one 6. Blocks start in order. If the longest started last, they would run alone at the end, while the other
# SMs wait. So v5 counts its rows from the end:

# %%
lessons.source("v5_async", "const int block_row =")

# %% [markdown]
# **The bottleneck that the next rung removes:** the warps wait for their own arithmetic. Between the two products each
# score costs a multiplication, a maximum, a subtraction, an exponential and a sum.
#
# **Practise:** the exercises of this rung begin with `v5_`. **Read on:** the rung's
# [README](../stages/v5_async/README.md). **Next:** [06, fewer instructions per score](06_v6_late_scale.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/05_v5_async.ipynb).
