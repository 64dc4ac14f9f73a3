# %% [markdown]
# # 07 v7_wgmma: products of a warpgroup
#
# From here on a rung needs a Hopper GPU to be fast (`sm_90a`: H100, H200). To run it, check it and count it you need
# no GPU. The emulator also has these instructions.

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
# ## What v6 waits for
#
# On an H200, by Nsight Compute's counters, at B = 4, H = 16, N = M = 4096, $d = 128$:

# %%
lessons.busy(["v5_async", "v6c_lane_reductions"])

# %% [markdown]
# In v6c shared memory is busier than the tensor cores. Each fragment of K and V passes through `ldmatrix` into the
# registers of each warp. And `mma.sync` itself is a limit: when it does nothing else, this GPU reaches two thirds of
# what its tensor cores can do (`results/h200/ceilings.csv`).
#
# ## Four warps, one product
#
# `mma.sync` is an instruction of one warp: 16 x 8 x 16 multiply-adds, with all operands in the warp's registers.
# **`wgmma`** is an instruction of four warps, a *warpgroup*:
#
# | | `mma.sync` | `wgmma` |
# |---|---|---|
# | issued by | one warp | a warpgroup: 4 warps, 128 threads |
# | largest product | 16 x 8 x 16 | 64 x 256 x 16 |
# | A | registers | registers or shared memory |
# | B | registers, by `ldmatrix` | shared memory |
# | completion | before the next instruction that needs it | asynchronous: the warps go on, and wait explicitly |
#
# A *descriptor*, 64 bits, says where an operand is in shared memory: its address, its strides and its swizzle. The
# hardware knows the XOR of lesson 03. So the tiles stay as they are, and `ldmatrix` is no longer needed.
#
# The tile library has these products under the names of v4's, with a `wait` of their own. Its header says how they
# are used:

# %%
lessons.source(
    "v7_wgmma",
    "// Products of a warpgroup: wgmma",
    "//   warpgroup::mma_wait<1>(s);",
    file="tiles/warpgroup.h",
)

# %% [markdown]
# The kernel's loop keeps v6's order: S, softmax, O. Its body is an exercise:

# %%
# %exercise v7_scores

# %% [markdown]
# The accumulator is spread over the four warps: each has 16 rows, and a quad of lanes shares a row, as before. So the
# softmax is v6's, and P becomes operand A of the second product without changing lanes.
#
# ## Two rules
#
# **1. The asynchronous proxy.** `wgmma` reads shared memory through the *asynchronous proxy*, outside the order of
# ordinary loads and stores. A fence, `fence_async_proxy`, makes a thread's own writes visible to it. The writes of
# the other threads need one more line, which is an exercise:

# %%
lessons.source("v7_wgmma", "async_wait();", "prefetch(1 - now")

# %% [markdown]
# **2. Registers in flight.** Between the issue of a product and the wait for it, no code may touch the registers that
# it reads or writes. If code does, ptxas inserts a wait and serialises all products: right, and slow. The emulator
# also waits there.
#
# ## Predict
#
# A tile has 48 keys, $d = 64$, and one `wgmma` is 16 deep: S is 64 x 48 x 16, O is 64 x 64 x 16. How many `wgmma`
# does a warpgroup issue per tile, for both products together?

# %%
wgmma_a_tile = None
lessons.predict("wgmma_a_tile", wgmma_a_tile)

# %% [markdown]
# ## Measured

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
table = ladder.compare(problem, ["v6c_lane_reductions", "v7_wgmma"], backend="emulator")
lessons.counts(table)

# %% [markdown]
# No load from shared memory is left, and none of its wavefronts: threads do not read tiles any more. What the tensor
# cores read is counted separately (`wavefronts_gmma`), and so are their instructions: `mma` is `mma.sync` alone. As
# in v6, `cp.async` loads the tiles.

# %%
gallery.costs(["v6c_lane_reductions", "v7_wgmma"], problem)

# %% [markdown]
# ## v7b: larger tiles
#
# v7 has v6c's tiles, so that the diff shows `wgmma` alone. Q, K and V take no registers any more, so larger tiles
# fit. v7b_large_tiles has up to 192 queries and 128 keys per tile, and head dimension 256. Q is then read less often:
# per 16 columns, a product of N keys takes 16 wavefronts for Q and N / 4 for K. TFLOP/s on an H200, at the same
# problem:

# %%
lessons.measured(["v6e_parts", "v7_wgmma", "v7b_large_tiles", "torch flash", "torch cuDNN"])

# %% [markdown]
# At $d = 128$ the larger tiles win. At $d = 64$ they lose a little: a block has three warpgroups instead of four. The
# next rungs keep them, and win back what they lose.
#
# ## What is left

# %%
lessons.busy(["v6c_lane_reductions", "v7_wgmma", "v7b_large_tiles"])

# %% [markdown]
# **The bottleneck that the next rung removes:** the warps wait at a barrier. All threads compute addresses for every
# tile, and meet before each one.

# %% [markdown]
# **Practise:** the exercises of this rung begin with `v7_`. **Read on:** the READMEs of
# [v7](../stages/v7_wgmma/README.md) and [v7b](../stages/v7b_large_tiles/README.md). **Next:** [08, TMA
# loads](08_v8_tma.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/07_v7_wgmma.ipynb).
