# %% [markdown]
# # 01b v1b_fa2_loops: queries outside
#
# v1 walks over the keys, and all queries pass by each tile of them. This rung swaps the two loops. Nothing else
# changes: one thread still owns one row, and does one multiply-add at a time, in fp32.

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
# ## Two ways through S
#
# The picture shows $S$, a cell for each tile, numbered in the order in which a block visits them. It is measured: a
# copy of each kernel reports where it is.

# %%
gallery.walk()

# %% [markdown]
# v1 walks *down*: a tile of K and V stays, all queries pass by, and each time their $o$, $l$ and $m$ are read from global
# memory and written back. v1b walks *to the right*: queries and results stay, K and V pass by. The queries are on the
# *grid*: each block has a tile of them, and all blocks walk at the same time.
#
# With a causal mask, the tiles that no query may see are left out:

# %%
gallery.walk(is_causal=True)

# %% [markdown]
# N and M differ here, so it matters what "causal" means. The ladder means what torch means: query $i$ sees the keys $j
# \le i$, the triangle is in the *upper left*. FlashAttention since version 2.1 puts it in the *lower right*: there the
# last query sees the last key. For N = M the two are the same.
#
# ## Predict
#
# Take one head, $N = M = 256$, $d = 64$. v1 has tiles of 32 keys. How many times does it read each row of Q?

# %%
reads_of_a_query = None
lessons.predict("reads_of_a_query", reads_of_a_query)

# %% [markdown]
# v1 launches a block for each head. v1b has tiles of 64 queries. How many blocks does it launch for two heads of
# $N = 256$?

# %%
blocks = None
lessons.predict("blocks_of_v1b", blocks)

# %% [markdown]
# ## What stays where
#
# | | v1 | v1b |
# |---|---|---|
# | outer loop, inner loop | keys, queries | queries (the grid), keys |
# | $o$ between two tiles | global memory | shared memory |
# | $m$ and $l$ between two tiles | global memory | registers |
# | $o$ is divided by $l$ | after each tile | once, at the end |
#
# The last line changes the mathematics, too. v1 keeps $o$ normalised: it multiplies by $l$ and divides by $l'$ for
# each tile. Keep the sum as it is instead,
#
# $$ O' = O\, e^{m - m'} + P V, \qquad l' = l\, e^{m - m'} + \textstyle\sum P, $$
#
# and divide once: $o = O / l$.

# %%
lessons.source("v1b_fa2_loops", "const float rescale = expf(m - m_new);", "m = m_new;")

# %%
# %exercise v1b_rescale

# %% [markdown]
# ## What the walk does to global memory
#
# A *sector* is 32 bytes, the least that global memory moves. v1b writes O once, at its end. Each thread writes its own row,
# one float after the other, so that a warp's store is a column of O. How many sectors does v1b write, for $B = 1$, $H = 2$,
# $N = 256$, $d = 64$, lse included?

# %%
sectors = None
lessons.predict("sectors_written", sectors)

# %%
table = ladder.compare(
    ladder.Problem(1, 2, 256, 256, 64), ["v1_minimal", "v1b_fa2_loops"], backend="emulator"
)
lessons.after("sectors_written", lambda: lessons.counts(table))

# %% [markdown]
# ## Measured
#
# Shared memory is where v1 left it. There are even a few more conflicts, since $o$ is in shared memory now, a row a
# lane:

# %%
gallery.costs(["v1_minimal", "v1b_fa2_loops"], ladder.Problem(1, 1, 128, 128, 64))

# %% [markdown]
# So what is it good for? More blocks. v1's two blocks would keep two of an H200's 132 SMs busy. On one, at B = 4, H = 16,
# N = 1024, v1 has 64 blocks and v1b 1024, and Nsight Compute found SMs with work for 48% and 97% of the time: v1b is twice as
# fast (0.22 and 0.46 TFLOP/s, `results/h200/speed.csv`). On the GPU of this machine:

# %%
lessons.times(["v1_minimal", "v1b_fa2_loops"])

# %% [markdown]
# **The bottleneck that the next rung removes:** one word at a time. Each multiply-add of a warp waits for shared memory,
# and the tensor cores, which multiply whole tiles in one instruction, are not used at all.
#
# **Practise:** the exercises of this rung begin with `v1b_`. **Read on:** the rung's
# [README](../stages/v1b_fa2_loops/README.md). **Next:** [02, tensor cores](02_v2_warp_mma.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/01b_v1b_fa2_loops.ipynb).
