# %% [markdown]
# # 07 v7_wgmma: products of a warpgroup
#
# From here on the ladder needs a Hopper GPU to be fast (`sm_90a`: H100, H200). To run, check and count it you need
# none: the emulator has these instructions, too.

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
# ## Four warps, one product
#
# `mma.sync` is a warp's instruction: 16 x 8 x 16 multiply-adds, and all operands in the warp's registers. **`wgmma`** is an
# instruction of four warps, a *warpgroup*:
#
# | | `mma.sync` | `wgmma` |
# |---|---|---|
# | who | a warp | a warpgroup: 4 warps, 128 threads |
# | the largest product | 16 x 8 x 16 | 64 x 256 x 16 |
# | A | registers | registers or shared memory |
# | B | registers, by `ldmatrix` | shared memory |
# | when | the warp goes on when it is done | the warps go on at once, and wait when they want the result |
#
# A *descriptor*, 64 bits, says where a factor lies in shared memory: its address, its strides, and which swizzle. The
# hardware knows the XOR of lesson 03. So the tiles stay as they are, and `ldmatrix` goes.

# %%
lessons.source("v7_wgmma", "// S = Q K^T", "warpgroup::mma_wait(o);")

# %% [markdown]
# The sums of a product are spread over the four warps as before over one: 16 rows each, a row in a quad of lanes. So the
# softmax is v6's, and P becomes the first factor of the second product without changing lanes.
#
# ## Two rules
#
# **1. The other proxy.** `wgmma` reads shared memory outside the order of ordinary loads and stores, through what PTX
# calls the *asynchronous proxy*. What threads have written there must be announced: a fence by those who wrote, then a
# barrier.

# %%
lessons.source("v7_wgmma", "async_wait();", "block::sync();")

# %% [markdown]
# **2. Hands off.** Between `mma_ABt(s, ...)` and `mma_wait(s)` nobody may touch the registers of `s`. Where code does, ptxas
# waits there, and makes every other product wait as well: right, and slow. The emulator waits there, too.
#
# ## Predict
#
# A tile has 48 keys, $d = 64$, and one `wgmma` instruction is 16 deep: S is 64 x 48 x 16, O is 64 x 64 x 16. How
# many of them does a warpgroup issue per tile, both products together?

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
# No load from shared memory is left, and none of its wavefronts: threads do not read tiles any more. (What the tensor
# cores read is counted separately, in `wavefronts_gmma`, and so are their instructions: `mma` is `mma.sync` alone.)
# Nor is there a store: as in v6, `cp.async` loads the tiles.

# %%
gallery.costs(["v6c_lane_reductions", "v7_wgmma"], problem)

# %% [markdown]
# v7 has v6c's tiles. wgmma affords larger ones, since no factor takes registers: v7b_large_tiles has 192 x 128. What
# they buy, TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16:

# %%
lessons.measured(["v6e_parts", "v7_wgmma", "v7b_large_tiles", "torch flash", "torch cuDNN"])

# %% [markdown]
# **The bottleneck that the next rung removes:** all threads compute addresses for every tile and meet at a barrier before
# each. And while all compute their softmax, the tensor cores are idle.
#
# **Practise:** the exercises of this rung begin with `v7_`.
# **Read on:** the rung's [README](../stages/v7_wgmma/README.md). **Next:** [08, TMA brings the tiles](08_v8_tma.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/07_v7_wgmma.ipynb).
