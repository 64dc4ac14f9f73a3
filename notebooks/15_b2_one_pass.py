# %% [markdown]
# # 15 b2_one_pass, b2b_pairs: five products
#
# b1 computes S and dP twice. Here one kernel computes all three gradients. Then two rungs make each fragment of shared
# memory serve more products. The first rung loses by itself, but the second rung needs it.

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
from ladder.operations import BackwardProblem

# %% [markdown]
# ## b2: one pass
#
# A block that owns a tile of keys computes dS of these keys, and has K. So it can compute their share of dQ. It
# *adds* this share in global memory to the shares of other blocks:
#
# $$ dQ_i = c \sum_{\text{tiles of keys } j} dS_{ij} K_j $$
#
# So two of the seven products are not needed. There are two costs. The shares are added in global memory. And dQ sums
# over the keys of *all* warps of the block, so dS must pass through shared memory once. The dQ of a step is computed in
# the next step, so that both steps share one barrier:

# %%
lessons.source("b2", "// The dQ of a step is computed in the next step", "tile = after;")

# %%
# %exercise b2_share_of_dq

# %% [markdown]
# ## Adding in the order of the registers
#
# `red.global.add` adds in the L2 cache and returns nothing. In a row-major matrix an instruction of a warp would
# touch 8 rows, and fill only a part of each sector. But only one other kernel reads these sums: it rounds them. So
# they are stored in the order of the registers. Value k of all 32 lanes is contiguous, 128 bytes per instruction.

# %%
lessons.source(
    "b2",
    "/// Storage for one row-layout fp32 tile",
    "static constexpr int size",
    file="tiles/fragments_global.h",
)

# %% [markdown]
# ## Counted

# %%
rungs = ["b1", "b2"]
lessons.counts(ladder.compare(questions.GRADIENTS, rungs, backend="emulator"))

# %% [markdown]
# The next table shows what it bought, in TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16:

# %%
lessons.measured([*rungs, "torch flash", "torch cuDNN"], "attention_backward")

# %% [markdown]
# b2 gains 20 to 21% over b1 at $d = 64$, and 9 to 10% at $d = 128$.
#
# ## What limits b2: shared memory
#
# Shared memory delivers 128 bytes per clock. A fragment of 512 bytes takes 4 clocks. If it serves one pair of `mma`,
# these are 8,192 operations: 2,048 per clock. `mma.sync` can do 2,704, two thirds of the 4,096 of the tensor cores
# (lesson 07). So shared memory is the limit.
#
# ### Predict
#
# With twice the keys per warp, each fragment would serve twice. But dK and dV must fit into the registers. At $d =
# 128$, how many registers per thread do dK and dV of 32 keys take in fp32? A thread has 255.

# %%
registers_of_gradients = None
lessons.predict("registers_of_gradients", registers_of_gradients)

# %% [markdown]
# ## b2b: two warps share their keys
#
# So two warps, a *pair*, share twice as many keys. The first warp computes $S^T$, $P^T$ and dV, and the second $dP^T$,
# $dS^T$ and dK. Each has half of the registers, and both run the same code: `has_dv` selects the operands.

# %%
lessons.source("b2b", "const auto k_or_v =", "mma_AB(dv_or_dk, x_16, do_or_q, dv_or_dk);")

# %% [markdown]
# $P^T$ passes from the first warp to the second through shared memory, as fp16. It is scaled by $2^{12}$, so that
# small weights stay normal numbers. `kUnshift` takes this factor out of dS again.

# %%
problem = BackwardProblem(1, 1, 128, 128, 128)
rungs = ["b2", "b2b"]
table = ladder.compare(problem, rungs, backend="emulator").set_index("stage")
table[["ldmatrix_instructions", "wavefronts_ld", "wavefronts_st", "mma_instructions", "global_sectors_ld"]].T

# %% [markdown]
# ## Larger blocks
#
# b2 uses at most 99 KB of shared memory per block, which every GPU from sm_86 on has. An sm_80 or sm_90 has
# more. At $d = 128$ b2b takes 161 KB: twice the keys per block and twice the queries per step. Each load of Q and dO
# serves twice as many keys, and dQ needs half as many additions. The host asks the device for its limit, and takes
# small blocks where large ones do not fit. The second table shows what pairs and large blocks bought:

# %%
lessons.measured([*rungs, "torch flash", "torch cuDNN"], "attention_backward")

# %% [markdown]
# At $d = 128$ pairs make room for the large blocks, which gain 14 to 15% over b2. At $d = 64$ blocks stay as they were, and
# the exchange and the barrier of the pair cost more than the saved fragments: b2b is 10 to 11% slower than b2.

# %%
gallery.costs(["b2", "b2b"], problem)

# %% [markdown]
# **The bottlenecks that the next rungs remove:** the last bits of dQ differ from run to run (b3). Every fragment
# passes through registers (b4).

# %% [markdown]
# **Practise:** the exercises begin with `b2_`. **Read on:** the READMEs of [b2](../stages/gradients/b2_one_pass/README.md)
# and [b2b](../stages/gradients/b2b_pairs/README.md). **Next:** [16, the same bits
# in every run](16_b3_same_bits.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/15_b2_one_pass.ipynb).
