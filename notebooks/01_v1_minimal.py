# %% [markdown]
# # 01 v1_minimal: FlashAttention-1
#
# [![Open in
# Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/01_v1_minimal.ipynb)

# %%
# On Colab this installs the project, which takes a few minutes. Where it is installed, nothing happens.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("ladder") is None:
    project = "flash-ladder @ git+https://github.com/flash-ladder/flash-ladder"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", project], check=True)

# %% [markdown]
# The idea of this rung: attention over tiles of keys, with an **online softmax**, so that the $N \times M$
# matrix of scores is never stored. One thread owns one query row. It is as simple as it can be, right for
# every size, and slow for a reason that you will find by counting.

# %%
import ladder
from ladder import banks
from ladder.banks import explain
from ladder.lessons import gallery, teaching
from ladder.plots import access_picture

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
# Where a tile brings a new maximum, the factor is below 1 and the old sum shrinks. Elsewhere it is 1.
#
# In the kernel these are the lines:

# %%
teaching.source("v1_minimal", "const float weight = expf(", "l_tile += weight;")

# %%
teaching.source("v1_minimal", "const float l_old =", "o = (l_old * o + pv) * inv_l;")

# %% [markdown]
# ## The loops
#
# One block does one head. The outer loop brings a tile of K and V into shared memory; the inner loop goes
# over all queries, a row a thread, and folds these keys into their $o$, $l$, $m$ in global memory.

# %%
teaching.source("v1_minimal", "for (int j0 = 0; j0 < p.kv_len; j0 += kBc)", "__syncthreads();")

# %% [markdown]
# And this line is the first product, one multiply-add at a time:

# %%
line = teaching.source("v1_minimal", "part += q_row[x] * k_smem[y * d + x];")
line

# %% [markdown]
# ## How many conflicts will this line have?
#
# It loads two words. In a warp all lanes have the same `x` and `y`. `k_smem[y * d + x]` is the same word
# for all lanes. `q_row` points to the lane's own row of a row-major tile, `d` words long: lane $i$ reads
# word $i \cdot d + x$. Take
# $d = 64$. How many bank conflicts has *one* load of `q_row[x]` by a warp?

# %%
conflicts_of_q_row = None

# %%
place = f"v1_minimal:{line.first}"
problem = ladder.Problem(1, 1, 128, 64, 64)
of_q = explain(place, problem)
teaching.check(
    conflicts_of_q_row,
    of_q.service.conflicts,
    hint="The bank is (64 i + x) mod 32. In how many different banks are the 32 words?",
    because="64 i is a multiple of 32, so all lanes are in bank x mod 32, each with another word: "
    "32 wavefronts where one could do.",
)

# %% [markdown]
# And one load of `k_smem[y * d + x]`?

# %%
conflicts_of_k_smem = None

# %%
other = next(one for one in of_q.instructions if one.number != of_q.chosen.number)
of_k = explain(place, problem, instruction=other.number)
teaching.check(
    conflicts_of_k_smem,
    of_k.service.conflicts,
    hint="The same word for everybody.",
    because="One word goes to all lanes in one wavefront: a broadcast.",
)

# %% [markdown]
# ## Measured
#
# The emulator saw every address. This is the load of `q_row[x]`, bank by bank:

# %%
access_picture(of_q.service, of_q.title)

# %% [markdown]
# And these are the lines that cost the most over the whole kernel:

# %%
teaching.costs("v1_minimal")

# %%
gallery.costs(["v1_minimal"])

# %% [markdown]
# The second product, `pv += s_row[y] * v_smem[y * d + x]`, has the same fault: `s_row` is a row of 32
# words for each lane. Each multiply-add of the kernel waits for 33 wavefronts, 32 for one factor and one
# for the other, and 31 of them are conflicts.
#
# ## What would help?
#
# A row that is one word longer would do for this access:

# %%
for row_words in (64, 65):
    found = banks.explore("ld", f"lane * {row_words} * 4")
    print(f"rows of {row_words} words: {found.service.conflicts} conflicts")

# %% [markdown]
# But then each multiply-add still loads two words, and shared memory hands out 32 words a cycle. A GPU's
# arithmetic units could do far more, and its tensor cores, which multiply whole tiles in one instruction,
# are not used at all:

# %%
teaching.counts(ladder.compare(ladder.Problem(1, 2, 256, 256, 64), ["v1_minimal"], backend="emulator"))

# %%
teaching.times(["v1_minimal"])

# %% [markdown]
# **The bottleneck that the next rung removes:** one thread a row, one word at a time. Lanes of a warp will
# share a tile of queries, tensor cores will do both products, and $o$, $l$ and $m$ will stay in registers
# instead of going to global memory for each tile.
#
# **Practise:** `ladder exercise list` has kernels of this rung with a gap; their names begin with `v1`.
#
# **Next:** [02, FlashAttention-2 on tensor cores](02_v2_warp_mma.ipynb).
