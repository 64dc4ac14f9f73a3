# %% [markdown]
# # 01b v1b_fa2_loops: parallelise over queries, loop over keys
#
# v1's outer loop goes over the keys, and its inner loop over all queries. This rung swaps the two loops. Nothing else
# changes: one thread still owns one row, and does one multiply-add at a time, in fp32.

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
from ladder.lessons import gallery, questions

# %% [markdown]
# ## Two ways through S
#
# The picture shows $S$, a cell for each tile, numbered in the order in which a block visits them. It is measured: a
# copy of each kernel reports where it is.

# %%
gallery.walk()

# %% [markdown]
# v1 goes *down*: a tile of K and V stays in shared memory while the block goes over all queries. Each time it reads
# their $o$, $l$ and $m$ from global memory and writes them back. v1b goes *to the right*: queries and results stay in
# the block, which goes over K and V. The *grid* is parallel over queries: each block has a tile of them, and all
# blocks run at the same time.
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
# v1 launches a block for each head. v1b has tiles of 64 queries. How many blocks does it launch for three heads of
# $N = 192$?

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
# The last line also changes the mathematics. v1 keeps $o$ normalised: it multiplies by $l$ and divides by $l'$ for
# each tile. v1b keeps the sum as it is,
#
# $$ O' = O\, e^{m - m'} + P V, \qquad l' = l\, e^{m - m'} + \textstyle\sum P, $$
#
# and divides once: $o = O / l$.

# %%
lessons.source("v1b", "const float rescale = expf(m - m_new);", "m = m_new;")

# %%
# %exercise v1b_rescale

# %% [markdown]
# ## What the order of the loops does to global memory
#
# A *sector* is 32 bytes, the smallest unit that global memory moves. v1b writes O once, at its end. Each thread
# writes its own row, one float after the other, so that a warp's store is a column of O. How many sectors does v1b
# write, for $B = 1$, $H = 3$, $N = 192$, $M = 200$, $d = 64$, lse included?

# %%
sectors = None
lessons.predict("sectors_written", sectors)

# %%
table = ladder.compare(questions.PROBLEM, ["v1", "v1b"], backend="emulator")
lessons.after("sectors_written", lambda: lessons.counts(table))

# %% [markdown]
# ## Measured
#
# The accesses to shared memory are v1's. There are even a few more conflicts, since $o$ is now in shared memory, one
# row per lane:

# %%
gallery.costs(["v1", "v1b"], ladder.Problem(1, 1, 128, 128, 64))

# %% [markdown]
# What it gains is more blocks. At B = 4, H = 16, N = 1024, v1 has 64 blocks and v1b has 1,024. An H200 has 132 SMs,
# and Nsight Compute found that SMs had work for 48% and 97% of the time. v1b reaches 0.40 TFLOP/s where v1 reaches
# 0.06 (`results/h200/speed.csv`). On the GPU of this machine:

# %%
lessons.times(["v1", "v1b"])

# %% [markdown]
# **The bottleneck that the next rung removes:** one word at a time. Each multiply-add of a warp waits for shared memory,
# and the tensor cores, which multiply whole tiles in one instruction, are not used at all.
#
# **Practise:** the exercises of this rung begin with `v1b_`. **Read on:** the rung's
# [README](../stages/v1b_fa2_loops/README.md). **Next:** [02, tensor cores](02_v2_warp_mma.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/01b_v1b_fa2_loops.ipynb).
