# %% [markdown]
# # 02 v2_warp_mma: FlashAttention-2 on tensor cores
#
# [![Open in
# Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/02_v2_warp_mma.ipynb)

# %%
# On Colab this installs the project, which takes a few minutes. Where it is installed, nothing happens.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("ladder") is None:
    project = "flash-ladder @ git+https://github.com/flash-ladder/flash-ladder"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", project], check=True)

# %% [markdown]
# The same mathematics, done by others: a **warp**, all 32 lanes together, does 16 query rows from the first key
# to the last, and **tensor cores**, the units that multiply small matrices, do both products.

# %%
import ladder
from ladder.banks import explain
from ladder.lessons import gallery, measure_walk, teaching
from ladder.plots import access_picture

# %% [markdown]
# ## Three changes
#
# **1. No division in the loop.** v1 computes $o' = (l\,e^{m-m'}\,o + \dots)/l'$: it divides at each tile
# and multiplies by $l$ at the next. Keep the sum unnormalised instead,
#
# $$ O' = O\, e^{m - m'} + P V, \qquad l' = l\, e^{m - m'} + \textstyle\sum P, $$
#
# and divide once, at the end: $o = O / l$.
#
# **2. Queries on the grid.** The loops change places. A block takes 64 query rows and walks over all keys,
# so there are $N / 64$ times as many blocks to fill the GPU with, and $O$, $l$, $m$ never leave the block.
#
# **3. Independent warps.** Each of the four warps owns 16 of these rows. Warps share the tiles of K and V,
# and nothing else.
#
# The picture shows $S$ with a cell for each tile, in the order in which a block comes to it:

# %%
gallery.walk()

# %% [markdown]
# v1 walks *down*: a tile of K and V stays, all queries pass by, and each time their $o$, $l$, $m$ are read
# from global memory and written back. v2 walks *to the right*: queries and results stay, K and V pass by.
# The blocks do so at the same time. With a causal mask, the tiles that no query may see are left out:

# %%
gallery.walk(is_causal=True)

# %% [markdown]
# What does that do to global memory? Take one head, $N = M = 256$, $d = 64$. v1 has tiles of 32 keys. How
# many times does it read each row of Q?

# %%
times_q_is_read = None

# %%
teaching.check(
    times_q_is_read,
    sum(visit.row == 0 for visit in measure_walk("v1_minimal", ladder.Problem(1, 1, 256, 256, 64))),
    hint="Once for each tile of keys.",
    because="256 keys are 8 tiles of 32, and for each of them all queries pass by. So do o, l and m, which are "
    "written as well.",
)

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
two = ladder.compare(problem, ["v1_minimal", "v2_warp_mma"], backend="emulator")
teaching.counts(two).loc[["sectors read", "sectors written"]]

# %% [markdown]
# (v1 reads fp32 and v2 fp16, which is a factor of 2. The rest is the walk, and wide loads.)
#
# ## Tensor cores, and their fragments
#
# One `mma` instruction multiplies a 16x16 tile A by a 16x8 tile B and adds the product to a 16x8 tile of
# sums. The operands are spread over the registers of the 32 lanes, in *fragments*. `ldmatrix` loads them
# from shared memory: lanes 0 to 7 give the addresses of the eight rows (16 bytes each) of a first 8x8
# tile, lanes 8 to 15 those of a second one, and so on, and each lane *receives* what its fragment needs.
# Who gets what?
#
# The emulator was asked: the tile holds its own element numbers, and each lane tells what it got. For A the
# second 8x8 tile is the one below the first. Two fragments of B, for twice 8 keys, have it beside the first: rows
# of K are keys, and the two halves of a row belong to one fragment. So the lanes give other addresses.

# %%
gallery.fragments()

# %% [markdown]
# A row of K is a column of $K^T$: K needs no transposing. V does, and `.trans` does it on the way.
#
# These lines are the product $S = QK^T$:

# %%
teaching.source("v2_warp_mma", "for (int n = 0; n < kBc; n += 16) {", "mma_m16n8k16<T>(part[1]")

# %% [markdown]
# Softmax wants rows, not fragments. So S goes through shared memory: it is stored as fragments and read
# back as rows. The new $m$ and $l$, and the rescaling of $O$:

# %%
teaching.source("v2_warp_mma", "rescale = exp2_approx((m_old - m_new)", "l_rmem = l_rmem * rescale + l_tile;")

# %%
teaching.source("v2_warp_mma", "o_rmem[n][0] *= rescale_upper;", "o_rmem[n][3] *= rescale_lower;")

# %% [markdown]
# ## How many conflicts will `ldmatrix` have?
#
# At $d = 64$ in fp16 a row of K is 128 bytes, and the tile is row-major. An `ldmatrix.x4` is served in
# four passes, one for each 8x8 tile: eight rows, 16 bytes from each. How many bank conflicts has one
# `ldmatrix` of K?

# %%
conflicts_of_ldmatrix = None

# %%
line = teaching.source("v2_warp_mma", "ldmatrix_x4(k_rmem")
of_k = explain(f"v2_warp_mma:{line.first}", ladder.Problem(1, 1, 64, 64, 64))
teaching.check(
    conflicts_of_ldmatrix,
    of_k.service.conflicts,
    hint="128 bytes is once around all 32 banks. In which banks do the eight rows of a pass start? Then four passes.",
    because="All eight rows of a pass start in the same bank: 8 wavefronts for one, 7 conflicts a pass, four passes.",
)

# %%
access_picture(of_k.service, of_k.title)

# %% [markdown]
# ## Measured

# %%
teaching.counts(two)

# %%
gallery.costs(["v2_warp_mma"])

# %% [markdown]
# One `ldmatrix` feeds thousands of multiply-adds, where v1 loaded two words for each one: that alone is why
# wavefronts fall so far. But of the wavefronts that are left four in five are conflicts, and three in four of
# these come from reading K and V.
#
# - `ldmatrix` of K, V, P: eight rows that lie 128 bytes apart (or a multiple), in the same bank: 8 for 1.
# - storing a fragment of S, 8 bytes a lane: two passes of 16 lanes, four rows each: 4 for 1.
# - row-wise accesses have none.
#
# All of them have one cause: **what lies below each other in a tile is in the same bank.**

# %%
teaching.times(["v1_minimal", "v2_warp_mma"])

# %% [markdown]
# **The bottleneck that the next rung removes:** bank conflicts. All of them, without a byte of padding.
#
# **Practise:** `ladder exercise list` has kernels of this rung with a gap; their names begin with `v2`.
#
# **Next:** [03, the swizzle](03_v3_swizzle.ipynb).
