# %% [markdown]
# # 02 v2_warp_mma: tensor cores
#
# The same loops, with other workers: a **warp**, all 32 lanes together, does 16 query rows from the first key to the
# last, and **tensor cores**, the units that multiply small matrices, do both products.

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
from ladder.lessons import gallery, questions
from ladder.plots import access_picture

# %% [markdown]
# A block has four warps and 64 query rows, of which each warp owns 16. Warps share the tiles of K and V in shared
# memory. Q, S, P and O of a warp are in its registers.
#
# ## Tensor cores, and their fragments
#
# One `mma` instruction multiplies a 16x16 tile A by a 16x8 tile B and adds the product to a 16x8 tile of
# sums. The operands are spread over the registers of the 32 lanes, in *fragments*. `ldmatrix` loads them
# from shared memory: lanes 0 to 7 give the addresses of the eight rows (16 bytes each) of a first 8x8
# tile, lanes 8 to 15 those of a second one, and so on, and each lane *receives* what its fragment needs.
# Who gets what?
#
# We asked the emulator: the tile holds its own element numbers, and each lane says what it got. For A the second 8x8
# tile is the one below the first. Two fragments of B, for twice 8 keys, have it beside the first: rows of K are keys,
# and the two halves of a row belong to one fragment. So the lanes give other addresses.

# %%
gallery.fragments()

# %% [markdown]
# A row of K is a column of $K^T$: K needs no transposing. V does, and `.trans` does it on the way.
#
# ## Marks in the kernel
#
# | mark | what it is |
# |---|---|
# | `k_rmem` | registers: what a lane holds of K |
# | `ldmatrix_x4`, `mma_m16n8k16` | one PTX instruction each. C++ has no word for them, so a small function wraps each as `asm volatile("...")`, *inline PTX* (`stages/include/ladder/ptx.h`) |
# | `__shfl_xor_sync(mask, x, 2)` | the `x` of the lane whose number differs in bit 1 |
# | `pack<T>(a, b)` | two floats, rounded to 16 bits, in one register |
# | `exp2_approx(x)` | $2^x$ in one instruction, `ex2.approx`. $e^x = 2^{x \log_2 e}$, and the factor is in the scale |
# | `row`, `col` | the place of this lane's first element in a 16x8 tile of sums |
#
# These lines are the product $S = QK^T$:

# %%
lessons.source("v2_warp_mma", "for (int n = 0; n < kBc; n += 16)", "mma_m16n8k16<T>(part[1]")

# %% [markdown]
# Which addresses do the lanes give for K? Here is a place to try it:

# %%
# %exercise v2_ldmatrix_k

# %% [markdown]
# Softmax works on fragments, too. Four lanes share a row of S, and each has parts of two rows. A row's maximum takes
# two shuffles. The new $m$ and $l$, and the rescaling of $O$:

# %%
lessons.source(
    "v2_warp_mma", "float m_new = m[half], l_tile = 0.f;", "o[i / 2][2 * half + i % 2] *= rescale;"
)

# %% [markdown]
# Each lane has the same places of an accumulator as of an operand A. So S, rounded, is the A of the second product,
# and never leaves its registers:

# %%
lessons.source("v2_warp_mma", "const float (&left)[4] = s_rmem[k / 8]", "mma_m16n8k16<T>(o_rmem[n / 8 + 1]")

# %% [markdown]
# ## Predict
#
# At $d = 64$ in fp16 a row of K is 128 bytes, and the tile is row-major. An `ldmatrix.x4` is served in four passes,
# one for each 8x8 tile: eight rows, 16 bytes from each. How many bank conflicts does one `ldmatrix` of K cause?

# %%
conflicts_of_ldmatrix = None
lessons.predict("ldmatrix_of_k", conflicts_of_ldmatrix)

# %%
of_k = questions.load_of_k()
lessons.after("ldmatrix_of_k", lambda: access_picture(of_k.service, of_k.title))

# %% [markdown]
# ## Measured

# %%
rungs = ["v1b_fa2_loops", "v2_warp_mma"]
lessons.counts(ladder.compare(ladder.Problem(1, 2, 256, 256, 64), rungs, backend="emulator"))

# %%
gallery.costs(["v2_warp_mma"])

# %% [markdown]
# One `ldmatrix` feeds thousands of multiply-adds, where v1b loaded two words for each one: that alone is why wavefronts
# fall so far. (Of the sectors, a factor of 2 is fp16, and the rest wide loads and stores.) But of the wavefronts that are
# left six in seven are conflicts, all of them in reading K and V. Rows that lie 128 bytes apart, or a multiple of that,
# meet in the same bank: `ldmatrix` reads eight such rows in a pass. Stores along a row have no conflict.
#
# There is one cause: **elements one below the other in a tile are in the same bank.**

# %%
lessons.times(rungs)

# %% [markdown]
# **The bottleneck that the next rung removes:** bank conflicts, without a byte of padding.
#
# **Practise:** the exercises of this rung begin with `v2_`. **Read on:** the rung's
# [README](../stages/v2_warp_mma/README.md). **Next:** [03, the swizzle](03_v3_swizzle.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/02_v2_warp_mma.ipynb).
