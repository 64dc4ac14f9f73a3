# %% [markdown]
# # 04 v4_tk_tiles: the algorithm, one operation per line
#
# v3 has no conflict left, and most of its text is about addresses, lanes and fragments. This rung puts all of that
# into a small library of **tiles**, so that the kernel reads like the algorithm. Then you can ask another question:
# do S and P have to move at all?

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
from ladder.lessons import gallery, measure_fragments, questions

# %% [markdown]
# ## It reads like the algorithm
#
# A tile lives in registers (`RegTile`, spread over the lanes of a warp) or in shared memory (`SharedTile`).
# Operations take the destination first. This is its main loop:

# %%
lessons.source("v4", "mma_ABt(s,", "mma_AB(o,")

# %% [markdown]
# (One step is left out: it is the exercise `v4_one_line`.) Operation by operation it is what you know:
#
# | operation | mathematics |
# |---|---|
# | `mma_ABt` | $S = Q K^T$ |
# | `right_fill`, `make_causal` | keys that do not exist or may not be seen: $-\infty$ |
# | `row_max(m_new, s, m)` | $m' = \max(m, \max_y s_y)$ |
# | `sub`, `exp2` of `rescale` | $e^{m - m'}$ |
# | `sub_row`, `exp2` | $e^{S - m'}$, in place |
# | `mul(l, l, rescale)`, `row_sum` | $l' = l\, e^{m - m'} + \sum P$ |
# | `mul_row`, `mma_AB` | $O' = O\, e^{m - m'} + P V$ |
#
# Powers of two instead of $e$: $e^x = 2^{x \log_2 e}$, and the GPU has an instruction for $2^x$.
#
# ## Who holds what
#
# As in v2, S and P never leave their registers. Look again at who holds what. After the first product each lane has
# elements of S as *sums* of an `mma`; for the second it needs P as operand *A*. Take columns 0 to 7 of both:

# %%
fragments = measure_fragments()
a_lanes, sum_lanes = fragments["ldmatrix"].lane[:, :8], fragments["mma"].lane
print("row 0, operand A:", a_lanes[0])
print("row 0, sums:     ", sum_lanes[0])

# %% [markdown]
# In how many of the 128 places do the two *differ*?

# %%
places_that_differ = None
lessons.predict("places_that_differ", places_that_differ)

# %%
gallery.fragments()

# %% [markdown]
# So S becomes P where it is, and neither goes through shared memory. The maximum of a row needs the four lanes that
# share it: two shuffles. And `m` and `l` are held by all four.
#
# ## Predict
#
# v3 and v4 store only K and V to shared memory: 16 bytes per lane, 512 bytes per instruction. At $d = 64$ a tile has
# 48 keys, and those past the end are stored as zeros. In v3 a block of 64 queries does this, in v4 a block of 256
# queries of a head. How many shared-memory *store* instructions does v4 execute on the problem $B = 1$, $H = 3$, $N =
# 192$, $M = 200$, $d = 64$?

# %%
stores_of_v4 = None
lessons.predict("stores_of_v4", stores_of_v4)

# %% [markdown]
# ## Measured

# %%
problem = questions.PROBLEM
rungs = ["v2", "v3", "v3b", "v4"]
table = ladder.compare(problem, rungs, backend="emulator")
lessons.after("stores_of_v4", lambda: lessons.counts(table))

# %%
gallery.costs(["v3", "v4"], problem)

# %% [markdown]
# A quarter of the stores and of the sectors is left, and there is no conflict: `SharedTile` swizzles by itself, with
# the parameters that follow from its size. The XOR is lesson 03's, on byte addresses, in chunks of 16 bytes:

# %%
# %exercise v4_swizzle

# %% [markdown]
# ## Sixteen warps on the same tiles
#
# S, P and O of 16 rows fit into 128 registers per thread if the tile of keys is small enough. So a block has sixteen
# warps, the *workers*, and reads K and V once for 256 queries, where v3 reads them for each 64:

# %%
lessons.source(
    "v4",
    "static constexpr int workers",
    "static constexpr bool q_in_registers",
)

# %% [markdown]
# All sixteen warps wait at the same barriers, for the same tile. That costs time, and fewer loads save time. The
# emulator counts and does not measure time, so these figures are from an H200: TFLOP/s at B = 4, H = 16, N = M =
# 4096, bf16.

# %%
lessons.measured(rungs)

# %% [markdown]
# And on the GPU of this machine, if it has one:

# %%
lessons.times(rungs)

# %% [markdown]
# ## A mistake that does not compile
#
# `mma_AB` takes its second operand by columns, `mma_ABt` by rows. The layout is part of a tile's type, and the
# compiler rejects a wrong one with a message that says what to do:

# %%
lessons.source(
    "v4",
    '"mma_AB: b is given in row layout',
    "or call mma_ABt with its transpose",
    file="tiles/mma.h",
)

# %% [markdown]
# ## The same ideas in CuTe
#
# Much CUDA code of today uses CuTe, the layouts and tiles of NVIDIA's CUTLASS. [This
# example](../examples/cute_attention.md) is v3 in CuTe. You know its ideas under other names:
#
# | idea | tile library | CuTe |
# |---|---|---|
# | a tile in shared memory, swizzled | `SharedTile<T, rows, d>` | a layout, composed with `Swizzle<3, 3, 3>` |
# | fragments in registers | `RegTile<T, 16, d>` | `partition_fragment_A`, `_B`, `_C` |
# | S = Q Kᵀ | `mma_ABt(s, q, k)` | `gemm(mma, q, k, s)`, with the `MMA_Atom` of the instruction |
# | loads of fragments | in `mma_ABt` | `copy`, with the atom of `ldmatrix` |
#
# For one head of 64 queries and 192 keys the emulator counts 768 `mma` in v3 and in the example, and no bank conflict.
# v3 has 384 `ldmatrix`. The example has 400, because it passes Q through shared memory, too.

# %% [markdown]
# **The bottleneck that the next rung removes:** while a tile is being loaded, no warp computes.
#
# **Practise:** the exercises of this rung begin with `v4_`. **Read on:** the rung's
# [README](../stages/v4_tk_tiles/README.md). **Next:** [05, copies under the products](05_v5_async.ipynb). Run this
# lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/04_v4_tk_tiles.ipynb).
