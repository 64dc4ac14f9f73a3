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
# in your head for what need not move: S and P.

# %%
import ladder
from ladder.lessons import gallery, measure_fragments, teaching

# %% [markdown]
# ## Reads as the algorithm
#
# A tile lives in registers (`RegTile`, spread over the lanes of a warp) or in shared memory (`SharedTile`).
# Operations take the destination first. This is its main loop:

# %%
teaching.source("v4_tk_tiles", "mma_ABt(s,", "mma_AB(o,")

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
# v3 stores S, P and O to shared memory, and Q, K and V as they come from global memory. In this rung, at $d
# = 64$, only K and V are stored, 16 bytes a lane and so 512 bytes an instruction, in tiles of 48 keys; those
# past the end are stored as zeros. One block does 256 queries of a head. How many shared-memory *store*
# instructions does v4 execute on the problem $B = 1$, $H = 2$, $N = M = 256$, $d = 64$?

# %%
stores_of_v4 = None

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
table = ladder.compare(problem, ["v2_warp_mma", "v3_swizzle", "v4_tk_tiles"], backend="emulator")
teaching.check(
    stores_of_v4,
    int(table.set_index("stage").loc["v4_tk_tiles", "shared_store_instructions"]),
    hint="Six tiles of 48 keys cover 256. A tile of K is 48 rows of 64 elements, two bytes each.",
    because="2 heads, 6 tiles of K and 6 of V, 6,144 bytes each. Q, S, P and O are in registers from beginning to end.",
)

# %% [markdown]
# ## Measured

# %%
teaching.counts(table)

# %%
gallery.costs(["v3_swizzle", "v4_tk_tiles"], problem)

# %% [markdown]
# Only K and V are left, and they have no conflict: `SharedTile` swizzles by itself, with the
# parameters that follow from its size.

# %%
teaching.source(
    "v4_tk_tiles",
    "static constexpr int swizzle(int byte)",
    "return byte ^ ((byte >> 7 & 3)",
    file="tiles/shared_tile.h",
)

# %% [markdown]
# ## Sixteen warps on the same tiles
#
# Without S and P a block's shared memory has room for more warps, and S, P and O of 16 rows fit into 128
# registers a thread if the tile of keys is chosen for it. So a block has sixteen warps, the *workers*, and
# reads K and V once for 256 queries, where v3 reads them for each 64:

# %%
teaching.source(
    "v4_tk_tiles",
    "static constexpr int workers",
    "static constexpr bool q_in_registers",
    file="arrangement.h",
)

# %% [markdown]
# All of them wait at the same barriers, for the same tile. The emulator counts and does not time, so it
# cannot show what that costs, nor what the registers save. On a GPU:

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
# **What is left:** while a tile is on its way nobody computes, and [v5_async](../stages/v5_async/README.md) orders
# it earlier; then the arithmetic between the two products, of which [v6_lean](../stages/v6_lean/README.md) does less
# for each score. That is the speed of FlashAttention-2.
#
# **Practise:** `ladder exercise list` has kernels of this rung with a gap; their names begin with `v4`.
#
# **Next:** [05, the whole ladder, and a rung of your own](05_the_ladder.ipynb).
