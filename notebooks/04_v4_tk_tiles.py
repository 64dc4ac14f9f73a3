# %% [markdown]
# # 04 v4_tk_tiles: the algorithm, one operation a line
#
# [![Open in
# Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/04_v4_tk_tiles.ipynb)

# %%
# On Colab this installs the project, which takes a few minutes. Where it is installed, nothing happens.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("ladder") is None:
    project = "flash-ladder @ git+https://github.com/flash-ladder/flash-ladder"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", project], check=True)

# %% [markdown]
# v3 has no conflict left, and most of its text is about addresses, lanes and fragments. This rung puts all
# of that into a small library of **tiles**, so that the kernel reads as the algorithm, and uses the room
# in your head for what the hardware still waits for: data that need not move, and time in which nothing
# arrives.

# %%
import ladder
from ladder import teaching
from ladder.plots import gallery
from ladder.plots.fragments import measure_fragments

# %% [markdown]
# ## Reads as the algorithm
#
# A tile lives in registers (`RegTile`, spread over the lanes of a warp) or in shared memory (`SharedTile`).
# Operations take the destination first. `plain.cu` is v3's block in tiles, nothing more:

# %%
teaching.source("v4_tk_tiles", "mma_ABt(s,", "mma_AB(o,", file="plain.cu")

# %% [markdown]
# Line by line it is what you know:
#
# | operation | mathematics |
# |---|---|
# | `mma_ABt` | $S = Q K^T$ |
# | `right_fill`, `make_causal` | keys that do not exist or may not be seen: $-\infty$ |
# | `row_max(m_new, s, m)` | $m' = \max(m, \max_y s_y)$ |
# | `sub`, `exp2` of `rescale` | $e^{m - m'}$ |
# | `sub_row`, `exp2` of `s` | $P = e^{S - m'}$ |
# | `mul(l, l, rescale)`, `row_sum` | $l' = l\, e^{m - m'} + \sum P$ |
# | `mul_row`, `mma_AB` | $O' = O\, e^{m - m'} + P V$ |
#
# Powers of two instead of $e$: $e^x = 2^{x \log_2 e}$, and the GPU has an instruction for $2^x$.
#
# ## S never leaves the registers
#
# In v2 and v3 S goes to shared memory as fragments and comes back as rows, and P goes there to come back
# as an operand. Is that needed? Look again at who holds what. After the first product each lane has
# elements of S as *sums* of an `mma`; for the second it needs P as operand *A*. Take columns 0 to 7 of
# both:

# %%
fragments = measure_fragments()
a_lanes, sum_lanes = fragments["ldmatrix"].lane[:, :8], fragments["mma"].lane
print("row 0, operand A:", a_lanes[0])
print("row 0, sums:     ", sum_lanes[0])

# %% [markdown]
# In how many of the 128 places do the two *differ*?

# %%
places_that_differ = None

# %%
teaching.check(
    places_that_differ,
    int((a_lanes != sum_lanes).sum()),
    hint="Compare the left with the right panel of the picture below, lane 5 for example.",
    because="A lane holds exactly the elements of S that it needs of P. Converting two fp32 to a pair of 16 bits is all; "
    "nothing has to change lanes.",
)

# %%
gallery.fragments()

# %% [markdown]
# So S is exponentiated where it is. The maximum of a row needs the four lanes that share it: two shuffles.
# And `m` and `l` are held by all four.
#
# ## Predict
#
# v3 stores S, P and O to shared memory, and Q, K and V as they come from global memory. In this rung K and V
# come by `cp.async`, which writes to shared memory without passing through registers and is not counted as
# a store. How many shared-memory *store* instructions does v4 execute on the problem $B = 1$, $H = 2$, $N
# = M = 256$, $d = 64$?

# %%
stores_of_v4 = None

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
table = ladder.compare(problem, ["v2_warp_mma", "v3_swizzle", "v4_tk_tiles"], backend="emulator")
teaching.check(
    stores_of_v4,
    int(table.set_index("stage").loc["v4_tk_tiles", "shared_store_instructions"]),
    hint="Where do Q, S, P and O live at d = 64?",
    because="Q, S, P and O are in registers from beginning to end. What is left in shared memory is K and V alone.",
)

# %% [markdown]
# ## Measured

# %%
teaching.counts(table)

# %%
gallery.costs(["v3_swizzle", "v4_tk_tiles"], problem)

# %% [markdown]
# Only reading K and V is left, and it has no conflict: `SharedTile` swizzles by itself, with the
# parameters that follow from its size.

# %%
teaching.source(
    "v4_tk_tiles",
    "static constexpr int swizzle(int byte)",
    "return byte ^ ((byte >> 7 & 3)",
    file="tiles/shared_tile.h",
)

# %% [markdown]
# ## What `kernel.cu` adds
#
# **Copies that overlap with arithmetic.** `cp.async` returns at once; the data arrives later. Shared
# memory holds more than one *stage* of tiles: while the tensor cores work on one, the next is on its way.
# The kernel waits only between two stages:

# %%
teaching.source("v4_tk_tiles", "async_wait<A::stages - 2>", "fetch<block>(kv_smem[next]")

# %% [markdown]
# **Rescaling only where it matters.** What is taken off the logits need not be the maximum, only near it:
# $O$ and
# $l$ have the same factor, and it cancels. So the kernel asks whether any row's maximum has grown by more than
# a little, and else leaves $m$, $l$ and $O$ as they are. The picture of lesson 01 shows how often that is:
# most tiles bring no new maximum at all.

# %%
teaching.source("v4_tk_tiles", "if (any_above(", "copy(m, m_new);")

# %% [markdown]
# **More rows for each tile.** A block's warps share the tiles of K and V, so more of them, or more rows
# for each, read global memory less often; registers are the limit. The lesson's
# [README](../stages/v4_tk_tiles/README.md) has the arrangements that were measured.
#
# The emulator counts and does not time, so it cannot show what that is worth. On a GPU:

# %%
teaching.times(["v2_warp_mma", "v3_swizzle", "v4_tk_tiles"])

# %% [markdown]
# ## A mistake that does not compile
#
# `mma_AB` wants its second operand by columns, `mma_ABt` by rows. The tile types know, and a wrong one is
# refused by the compiler with a sentence on what to do:

# %%
teaching.source(
    "v4_tk_tiles",
    '"mma_AB: b is given in row layout',
    '"or call mma_ABt with its transpose"',
    file="tiles/mma.h",
)

# %% [markdown]
# **What is left:** tensor cores that are fed by `ldmatrix` through registers. Hopper's `wgmma` reads its
# operands from shared memory by itself, and TMA brings them there; this is where faster kernels than this
# one begin.
#
# **Practise:** `ladder exercise list` has kernels of this rung with a gap; their names begin with `v4`.
#
# **Next:** [05, the whole ladder, and a rung of your own](05_the_ladder.ipynb).
