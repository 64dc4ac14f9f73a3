# %% [markdown]
# # 07 v7_wgmma: products of a warpgroup
#
# The rungs of lessons 07 to 12 use instructions that only Hopper GPUs have (`sm_90a`: H100, H200). The emulator
# executes these instructions, too. So you can run, check and count the rungs without a GPU.

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
# These are Nsight Compute's counters on an H200 at B = 4, H = 16, N = M = 4096, $d = 128$ ([what the words
# mean](../docs/glossary.md)):

# %%
lessons.busy(["v5", "v6"])

# %% [markdown]
# In v6 shared memory is busy for 78% of the time, and the tensor cores for 43%. Each fragment of K and V passes
# through `ldmatrix` into the registers of each warp. `mma.sync` is a limit, too: even a loop of nothing else reaches
# only two thirds of what the tensor cores can do (`results/h200/ceilings.csv`).
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
# A 64-bit *descriptor* gives an operand's place in shared memory: its address, its strides and its swizzle. The
# hardware applies the XOR of lesson 03. So the tiles stay as they are, and `ldmatrix` is no longer needed.
#
# Why is there no conflict? In one wavefront `wgmma` reads 8 rows of 16 bytes, as one pass of `ldmatrix` does. If rows
# are 128 bytes long, without the XOR all eight pieces would be in the same four banks. The XOR moves them to eight
# different groups of four banks: all 32. Rows of 256 bytes do not occur, because at $d = 128$ a tile is stored as two
# blocks of 64 columns.
#
# In the tile library these products have the same names as in v4. `mma_wait` waits for them. The header shows how they
# are used:

# %%
lessons.source(
    "v7",
    "// Products of a warpgroup: wgmma",
    "//   warpgroup::mma_wait<1>(s);",
    file="tiles/warpgroup.h",
)

# %% [markdown]
# A call issues one `wgmma` per 16 terms of the sum, and commits them as one *group*. `mma_wait<1>` waits until at most
# one group is in flight, the one committed last. All groups before it are then complete. In the header's example S is
# complete after `mma_wait<1>(s)`. O += P V may still be in flight. So the code may read S and overwrite the tile of K,
# but it may not touch O, P or the tile of V. The argument `s` only tells the compiler which registers hold results now.
# `mma_wait(o)` leaves no group in flight.
#
# v7 waits for each product at once, so it never has two groups in flight. v10b in lesson 10 has.
#
# The kernel's loop keeps v6's order: S, softmax, O. Its body is an exercise:

# %%
# %exercise v7_scores

# %% [markdown]
# Each of the four warps holds 16 rows of the accumulator. Four lanes, a quad, share a row, as before. So the softmax
# is v6's. P becomes operand A of the second product without changing lanes.
#
# ## Two rules
#
# **1. The asynchronous proxy.** `wgmma` reads shared memory through the *asynchronous proxy*, outside the order of
# ordinary loads and stores. The fence `fence_async_proxy` makes the writes of the thread that executes it visible to
# this proxy. So every thread executes it, after its own copies have arrived. The writes of the other threads need one
# more line, which is an exercise:

# %%
lessons.source("v7", "async_wait();", "prefetch(1 - now")

# %% [markdown]
# **2. Registers in flight.** From its issue until it completes, a product reads the registers of operand A, if it is
# there, and reads and writes the accumulator. No code may touch these registers before the wait. Where ptxas sees
# such code, it adds waits and serialises all products: the result is right, but the kernel is slow. The emulator also
# waits at these places. Accesses *before* the product need `wgmma.fence`. It orders earlier accesses to the registers
# before the product's accesses. All four warps execute it; the tile library issues it in front of each product.
#
# ## Predict
#
# A tile has 128 keys, and $d = 64$. One `wgmma` sums over 16 terms: 64 x 128 x 16 for S, 64 x 64 x 16 for O. How many
# `wgmma` does a warpgroup issue per tile, for both products?

# %%
wgmma_a_tile = None
lessons.predict("wgmma_a_tile", wgmma_a_tile)

# %% [markdown]
# ## Counted

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
table = ladder.compare(problem, ["v6", "v7"], backend="emulator")
lessons.counts(table)

# %% [markdown]
# Threads do not read tiles any more: no `ldmatrix` is left, and no wavefront of a load. Wavefronts of the tensor
# cores are counted separately (`wavefronts_gmma`), and so are `wgmma` instructions: `mma` counts only `mma.sync`. As
# in v6, `cp.async` loads the tiles.

# %%
gallery.costs(["v6", "v7"], problem)

# %% [markdown]
# ## Larger tiles
#
# Q, K and V take no registers any more, so larger tiles fit. v7 has tiles of 192 queries and 128 keys up to $d = 64$, and
# of 128 queries and 128 keys at $d = 128$. It also has head dimension 256.
#
# With larger tiles of keys Q is read less often. A `wgmma` for S reads 16 columns of Q and K, which are 32 bytes per
# row. A wavefront reads 16 bytes of 8 rows. So the 64 rows of Q take 16 wavefronts, and 32 keys take 8. At $d = 128$ v6
# has 32 keys per tile and v7 128. With 32 keys, v7 would read Q four times as often.
#
# ## What it bought
#
# These are TFLOP/s on an H200, for the same problem:

# %%
lessons.measured(["v6e", "v7", "torch flash", "torch cuDNN"])

# %% [markdown]
# Without a mask v7 gains 13% over v6e at $d = 64$, and 38% at $d = 128$. In an earlier run, v7 with v6's tiles was 4%
# slower at $d = 128$, and 5 to 6% faster at $d = 64$. At $d = 64$ a block of v7 has three warpgroups instead of four;
# whether this is the cause was not measured. The next rungs keep the large tiles.
#
# ## What is left

# %%
lessons.busy(["v6", "v7"])

# %% [markdown]
# In v7 at $d = 128$ the tensor cores are busy for 54% of the time, and no unit is busier.
#
# **The bottleneck that the next rung removes:** the warps wait at a block barrier before each tile. And all threads
# compute addresses for the copies of every tile.

# %% [markdown]
# **Practise:** the exercises of this rung begin with `v7_`. **Read on:** the
# [README of v7](../stages/v7_wgmma/README.md). **Next:** [08, TMA loads](08_v8_tma.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/07_v7_wgmma.ipynb).
