# %% [markdown]
# # 09 v9_roles: a producer and consumers
#
# In v8 the thread that issues loads also multiplies. Here warpgroups have roles. From this lesson to lesson 12 the
# arithmetic changes little. What changes is which warps do it, and when.

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
# ## What v8 waits for
#
# One thread of v8 issues all loads. Before it may load into a buffer, every warp must have released it. So this
# thread waits for the slowest warp, once per tile, and its own warpgroup waits with it. These are Nsight Compute's
# counters on an H200 at B = 4, H = 16, N = M = 4096, $d = 128$:

# %%
lessons.busy(["v8"])

# %% [markdown]
# The tensor cores are idle for a third of the time, and no other unit is busier. The warps wait.
#
# ## The idea: roles
#
# - A **producer** issues loads and never computes. It is one thread of a warpgroup of its own. It runs ahead of the
#   others as far as there are free buffers.
# - **Consumers** compute and never issue loads. They wait for `full`, multiply, and release.
#
# This is called *warp specialisation*. The producer's whole program is a loop. Write it:

# %%
lessons.source("v9", "/// The producer, a single thread.", "smem.q.load_async(")

# %%
# %exercise v9_produce

# %% [markdown]
# ## Registers move
#
# A launch gives every thread the same number of registers. The producer needs few. The consumers need many: O, S and
# P are all in registers. `setmaxnreg` moves registers from one warpgroup of a block to another while the block runs:

# %%
lessons.source(
    "v9", "// From here on each thread of the calling warpgroup", "setmaxnreg.inc", file="tiles/roles.h"
)

# %% [markdown]
# ptxas compiles each branch of the kernel for its own number of registers. The branch itself, which separates the
# producer from the consumers, is exercise `v9_roles`.
#
# ## Predict
#
# A block has 4 warpgroups, 512 threads, and an SM has 65,536 registers: 128 per thread. The producer's warpgroup goes
# down to 32. How many can each thread of the three consumers have?

# %%
registers_of_consumers = None
lessons.predict("registers_of_consumers", registers_of_consumers)

# %% [markdown]
# ## Counted

# %%
problem = ladder.Problem(1, 2, 384, 384, 64, is_causal=True)
table = ladder.compare(problem, ["v8", "v9"], backend="emulator").set_index("stage")
table[["wgmma_instructions", "tma_load_instructions", "tma_sectors_ld", "global_sectors_st"]].T

# %% [markdown]
# The counts are v8's, so they cannot show what roles bought. Times can. These are TFLOP/s on an H200:

# %%
lessons.measured(["v8", "v9", "torch cuDNN"])

# %% [markdown]
# At $d = 64$ v9 gains 10% without a mask, and 7% with one. At $d = 128$ it gains 12 and 14%.
#
# ## A third consumer
#
# v8 has two warpgroups at $d = 128$. In an earlier run, roles with two consumers lost 5% at $d = 128$ without a mask,
# and gained nothing with a mask. While one consumer computes its softmax, only the other consumer has products for the
# tensor cores. So v9 has three consumers at $d = 128$, too, and smaller tiles of keys:

# %%
lessons.source("v9", "static constexpr int consumers = d <= 128", "static constexpr int keys = d <= 64")

# %% [markdown]
# With two consumers a block starts with 168 registers per thread. The producer's warpgroup goes down to 24, so each
# thread of a consumer has 240. With three consumers it has 160. O takes 64 of them, and S of 80 keys takes
# 40. P has half the size of S, since its elements have 16 bits. Here it takes over S's registers: when P is there, S is
# not needed any more. So tiles of 128 keys would fit, too. But in lesson 10 the next S is computed while P is in use.
# Then both need registers: 64 + 40 + 20 for 80 keys. With 96 keys ptxas spills in v10b.
#
# A tile of K and V also serves 192 rows instead of 128. These counters show how busy the units are at $d = 128$:

# %%
lessons.busy(["v8", "v9"])

# %% [markdown]
# In the earlier run the third consumer gained 28% without a mask at $d = 128$, and 14% with one. The tensor cores are
# busy for 81% of the time. With two consumers it was 65%.
#
# ## What it costs, and what is left
#
# There are more tiles, so there are more waits per key. And a block has 192 rows, so a block with few rows left at
# the end of the queries wastes more.
#
# **The bottleneck that the next rung removes:** a consumer issues no products during its softmax, and computes no
# softmax during its products. Whether one consumer's softmax overlaps another consumer's products is left to chance.

# %% [markdown]
# **Practise:** the exercises begin with `v9_`. **Read on:** the
# [README of v9](../stages/v9_roles/README.md). **Next:** [10, softmax under products](10_v10_pingpong.ipynb). Run
# this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/09_v9_roles.ipynb).
