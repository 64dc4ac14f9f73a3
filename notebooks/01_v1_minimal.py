# %% [markdown]
# # 01 v1_minimal: FlashAttention-1
#
# The idea of this rung: attention over tiles of keys, with an **online softmax**, so that the $N \times M$
# matrix of scores is never stored. One thread owns one query row. It is as simple as it can be, right for
# every size, and slow for a reason that you will find by counting.

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
from ladder import banks, lessons
from ladder.lessons import gallery, questions
from ladder.show.plots import access_picture

# %% [markdown]
# ## Softmax in pieces
#
# Softmax needs the whole row: its maximum, so that nothing overflows, and its sum. Say we have seen some
# keys of a row and hold three things about them:
#
# $$ m = \max_j s_j, \qquad l = \sum_j e^{s_j - m}, \qquad o = \frac1l \sum_j e^{s_j - m}\, v_j. $$
#
# A tile with further scores $s_y$ and values $v_y$ arrives. The new maximum is $m' = \max(m, \max_y s_y)$.
# The old sums were taken relative to $m$. But $e^{s - m'} = e^{s - m}\, e^{m - m'}$: one factor moves
# *all* old terms to the new maximum. So
#
# $$ l' = l\, e^{m - m'} + \sum_y e^{s_y - m'}, \qquad
#    o' = \frac{l\, e^{m - m'}\, o + \sum_y e^{s_y - m'}\, v_y}{l'}. $$
#
# Start with $m = -\infty$, $l = 0$, $o = 0$. After the last tile $o$ is the result, and $m + \log l$ the
# log-sum-exp. Every exponent is at most 0: nothing overflows, however large the scores are.
#
# Here is one row of 512 keys, in tiles of 32. The kernel was run on the first tile, the first two, and so
# on:

# %%
gallery.softmax()

# %% [markdown]
# Where a tile has a new maximum, the factor is below 1 and the old sum shrinks. Elsewhere it is 1.
#
# ## Names in the kernels
#
# | name | what it is |
# |---|---|
# | `p` | the problem: pointers and sizes, as the host passes them |
# | `q_gmem`, `k_smem` | Q in global memory, a tile of K in shared memory |
# | `q_row`, `s_row` | this thread's own row of a tile in shared memory |
# | `kBr`, `kBc` | rows of queries and of keys in a tile; a `k` in front says: known at compile time |
# | `d` | the head dimension |
# | `i0`, `j0` | the first query and the first key of a tile |
# | `m_old`, `m_new`, `l_old`, `l_new` | $m$, $m'$, $l$, $l'$ |
# | `l_tile`, `pv` | what this tile adds to $l$ and, for one element, to $o$ |
# | `inv_l` | $1 / l'$ |
# | `#pragma unroll 1` | the loop stays as written: unrolled, loads of several iterations would be merged and counted as one |
#
# In the kernel these are the lines. **A line that is left out is an exercise, with its name**: you write it, and once
# you have solved it, listings show yours and ours.

# %%
lessons.source("v1", "const float weight = expf(", "l_tile += weight;")

# %%
lessons.source("v1", "const float l_old =", "o = (l_old * o + pv) * inv_l;")

# %% [markdown]
# Write the missing line here. Run the cell as it is: it shows the task and copies the gap's text into the cell.
# Change the text, and run the cell again. `ladder exercise` does the same in a terminal, on the same files.

# %%
# %exercise v1_rescale

# %% [markdown]
# ## The loops
#
# One block computes one head. The outer loop loads a tile of K and V into shared memory. The inner loop goes over all
# queries, one row per thread, and adds these keys to their $o$, $l$, $m$ in global memory.

# %%
lessons.source("v1", "for (int j0 = 0; j0 < p.kv_len; j0 += kBc)", "__syncthreads();")

# %% [markdown]
# ## A race, found with the debugger
#
# The barrier at the end of this listing stands between the loads of a tile and their use. What if it is missing? The
# debugger runs the kernel on the emulator, one warp at a time. With the sanitizer on, it stops at each finding. These
# are its commands and answers, on a copy of the kernel without that barrier:

# %%
lessons.debug(
    "v1",
    ladder.Problem(1, 1, 128, 64, 32),
    [
        *("continue", "continue", "print y * d + x", "print k_smem[y * d + x]", "info warps"),
        *("watch k_smem[32]", "continue", "rcontinue"),
    ],
    check=True,
    without="__syncthreads();",
)

# %% [markdown]
# The first finding is a race between lanes of a warp. The second shows the fault: warp 0 reads an element that nothing
# has written, which the emulator shows as NaN. The other warps have not begun to load. `watch` stops when warp 1 stores
# the element, thousands of instructions later. `rcontinue` goes back to the last finding, the read that came too early.
#
# `ladder debug` has the same commands in a terminal, and [its manual](../docs/debugger.md) shows these steps one by
# one. On the site, [this rung's page](../stages/v1_minimal/README.md) leads to its live page: there the browser runs the
# kernel without a barrier. There, the link below the exercise above leads to a page where you can solve it without
# installing anything.
#
# ## The first product
#
# This line is the first product, one multiply-add at a time:

# %%
lessons.source("v1", "part += q_row[x] * k_smem[y * d + x];")

# %% [markdown]
# ## Predict
#
# It loads two words. In a warp all lanes have the same `x` and `y`. `k_smem[y * d + x]` is the same word for all
# lanes. `q_row` points to the lane's own row of a row-major tile, `d` words long: lane $i$ reads word $i \cdot d + x$.
# Take $d = 64$. How many bank conflicts does a warp cause by *one* load of `q_row[x]`?

# %%
conflicts_of_q_row = None
lessons.predict("q_row", conflicts_of_q_row)

# %% [markdown]
# And one load of `k_smem[y * d + x]`?

# %%
conflicts_of_k_smem = None
lessons.predict("k_smem", conflicts_of_k_smem)

# %% [markdown]
# ## Measured
#
# The emulator saw every address. This is the load of `q_row[x]`, bank by bank:

# %%
of_q = questions.product_of_v1("q")
lessons.after("q_row", lambda: access_picture(of_q.service, of_q.title))

# %% [markdown]
# And these are the lines that cost the most over the whole kernel:

# %%
problem = ladder.Problem(1, 1, 128, 128, 64)
lessons.costs("v1", problem)

# %%
gallery.costs(["v1"], problem)

# %% [markdown]
# The second product, `pv += s_row[y] * v_smem[y * d + x]`, has the same problem: `s_row` is a row of 32 words per
# lane. Almost all wavefronts of the kernel are conflicts: one factor of each multiply-add takes 32 wavefronts, the
# other takes one.
#
# ## What would help?
#
# For this access it is enough to make each row one word longer:

# %%
found = banks.explore("ld", "lane * 65 * 4")
print(f"rows of 65 words: {found.service.conflicts} conflicts")

# %% [markdown]
# But then each multiply-add still loads two words, and shared memory delivers 32 words per cycle. A GPU's
# arithmetic units could do far more, and its tensor cores, which multiply whole tiles in one instruction,
# are not used at all:

# %%
lessons.counts(ladder.compare(ladder.Problem(1, 2, 256, 256, 64), ["v1"], backend="emulator"))

# %%
lessons.times(["v1"])

# %% [markdown]
# **The bottleneck that the next rung removes:** $o$, $l$ and $m$ go to global memory and back for each tile, and a
# whole head is one block's work.
#
# **Practise:** the exercises of this rung begin with `v1_`: `!ladder exercise list` shows them. **Read on:** the
# rung's [README](../stages/v1_minimal/README.md). **Next:** [01b, FlashAttention-2's loops](01b_v1b_fa2_loops.ipynb).
# Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/01_v1_minimal.ipynb).
