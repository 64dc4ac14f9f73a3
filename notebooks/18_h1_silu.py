# %% [markdown]
# # 18 h1_silu: attention without a softmax
#
# Recommenders read a user's log of actions and predict the next one. HSTU ("Actions Speak Louder than Words", 2024)
# does it with an attention that has no softmax. What you know about tiles also applies here. This ladder has five
# lessons. Its first rung removes more than it adds.

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
import pandas as pd

import ladder
from ladder import lessons
from ladder.operations import HstuProblem

# %% [markdown]
# ## What falls away
#
# $$ o_i = \frac1n \sum_{j \le i} \mathrm{silu}(\alpha\, q_i \cdot k_j)\, v_j, \qquad \mathrm{silu}(x) = \frac{x}{1 + e^{-x}} $$
#
# Here $n$ is a constant of the batch: the length of its longest sequence, unless you say otherwise. A weight depends
# on its own logit and on no other. So there is no maximum, no row sum and no rescaling, and nothing is divided at the
# end. Tiles of keys can be added in any order. This is the body of the loop. In place of `silu`, v6 calls a softmax
# of about twenty lines:

# %%
lessons.source("h1", "mma_ABt(s, q, k_smem[now]);", "mma_AB(o, p_16, v_smem[now], o);")

# %% [markdown]
# ## Jagged batches
#
# Users have logs of different lengths. If all were padded to the longest one, most of the work would be wasted. So
# the sequences follow each other in one tensor. An array, `cu_seqlens`, holds where each one begins. The grid is
# heads x sequences x blocks of 128 queries of the *longest* sequence. Blocks past the end of a shorter one return at
# once:

# %%
lessons.source("h1", "const Sequence<T, d> sequence(problem);", "return;")

# %% [markdown]
# ### Predict
#
# Three sequences have 512, 100 and 30 queries, and there is one head. How many blocks return at once?

# %%
blocks_without_queries = None
lessons.predict("blocks_without_queries", blocks_without_queries)

# %% [markdown]
# Rows past the end of a sequence are read as zeros. Their logits are 0, and silu(0) is 0: the ragged end needs no
# mask. With a softmax it would, since exp(0) is 1.

# %%
padded = HstuProblem(heads=1, head_dim=64, q_lens=(512, 512, 512))
jagged = HstuProblem(heads=1, head_dim=64, q_lens=(512, 100, 30))
for name, problem in {"padded": padded, "jagged": jagged}.items():
    counted = ladder.compare(problem, ["h1"], backend="emulator").iloc[0]
    print(f"{name}: {counted['mma_instructions']:6,} mma, {counted['global_sectors_ld']:6,} sectors read")

# %% [markdown]
# ## One special function
#
# An SM computes 16 special functions per clock: exponentials, inverses, `tanh`. Written as x / (1 + e⁻ˣ), silu takes
# two of them. With y = x / 2 it is y + y tanh(y), which takes one. The table compares this with the products, in
# clocks of an SM per score, at the 2,704 operations per clock that `mma.sync` reaches:

# %%
pd.DataFrame(
    {f"d = {d}": [4 * d / 2704, 1 / 16, 2 / 16] for d in (32, 64, 128)},
    index=["products", "silu by tanh", "silu by exponential and inverse"],
).round(3)

# %%
lessons.source("h1", "/// dst = silu(scale * src)", "/// function per value.", file="tiles/maps.h")

# %% [markdown]
# With two special functions, $d = 64$ would be limited by them. At $d = 32$ even one takes longer than the products.
# The error of `tanh.approx` is at most $2^{-11}$, the error of a rounding to fp16. The weights are rounded to 16 bits
# in any case.
#
# A warp that waits for its special functions issues no products, so other warps must. Small tiles help: with 32 keys
# per tile there are registers for three blocks per SM at $d = 64$.
#
# ## What it reaches
#
# These are TFLOP/s on an H200 with 16 heads in bf16. They count the pairs of a causal mask (`results/h200/hstu.csv`):

# %%
lessons.measured_hstu(["h1"])

# %% [markdown]
# Short sequences reach less: a launch has fewer blocks, and a larger part of their tiles is cut by the diagonal.
#
# **What is left:** here every query sees all tokens before it. The next rung adds the masks of recommenders.

# %% [markdown]
# **Practise:** the exercises begin with `h1_`. **Read on:** the rung's [README](../stages/hstu/h1_silu/README.md).
# **Next:** [19, only the tiles that the mask needs](19_h2_masks.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/18_h1_silu.ipynb).
