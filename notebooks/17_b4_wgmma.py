# %% [markdown]
# # 17 b4_wgmma to b4g_wide_adds: gradients on Hopper
#
# Seven rungs take the backward pass where lessons 07 to 10 took the forward pass: `wgmma`, TMA, roles, overlap. The
# ideas are known. Two things are new: some of the five products need the results of others, and one gradient is
# summed over blocks.

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
from ladder.lessons import questions
from ladder.operations import BackwardProblem

# %% [markdown]
# ## The steps
#
# TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16. Read it from top to bottom; each row adds one idea:

# %%
rungs = ["b4_wgmma", "b4b_tma", "b4c_tma_stores", "b4d_roles", "b4e_overlap", "b4f_halves", "b4g_wide_adds"]
lessons.measured(["b2c_large_blocks", *rungs, "torch flash", "torch cuDNN"], "attention_backward")

# %% [markdown]
# ## b4: five products of a warpgroup
#
# b2c loads every operand as fragments, and two warps share them. `wgmma` reads operands from shared memory, so four
# warps share what is read, and the pairs are not needed. Each of two warpgroups has 64 keys, and computes both dV and
# dK of them. All products except dQ are transposed, keys by queries:
#
# | product | operand A | operand B |
# |---|---|---|
# | $S^T = K Q^T$ | K, shared memory | Q, shared memory |
# | $dP^T = V dO^T$ | V, shared memory | dO, shared memory |
# | $dV \mathrel{+}= P^T dO$ | $P^T$, registers | dO, shared memory |
# | $dK \mathrel{+}= dS^T Q$ | $dS^T$, registers | Q, shared memory |
# | $dQ = dS\, K$ | $dS^T$, shared memory, read transposed | K, shared memory |
#
# `wgmma` reads an operand in shared memory by rows or transposed. So one copy of Q, dO and K serves both uses.

# %%
lessons.source("b4_wgmma", "// S^T = K Q^T, P^T = exp(scale S^T - lse)", "warpgroup::mma_wait(dk);")

# %% [markdown]
# ### Predict
#
# A step at $d = 64$ is a tile of 128 queries against 128 keys. A `wgmma` has 64 rows and a depth of 16. How many does
# *one* warpgroup issue per step, for S, dP, dV, dK and its half of dQ?

# %%
wgmma_a_step = None
lessons.predict("wgmma_a_step", wgmma_a_step)

# %% [markdown]
# ## b4b, b4c: TMA
#
# b4b replaces `cp.async` and the block barrier by TMA loads and mbarriers, as v8 does. lse and delta are loaded with
# the tiles they belong to, and count for the same mbarrier. b4c stores dK and dV through the shared memory of K and
# V, by TMA, as v11b stores O. The block barrier remains for one purpose: dS, which all warps store and read.

# %%
table = ladder.compare(BackwardProblem(1, 1, 256, 256, 64), rungs[:3], backend="emulator").set_index("stage")
table[
    [
        "wgmma_instructions",
        "tma_load_instructions",
        "tma_store_instructions",
        "global_sectors_ld",
        "global_sectors_st",
    ]
].T

# %% [markdown]
# ## b4d: roles
#
# A producer warp issues all loads. Two consumer warpgroups compute, with 240 registers per thread: dV, dK, $S^T$ and
# $dP^T$ fit without spilling. By itself this *loses* 1 to 6%. The producer costs a warpgroup, and every product is
# still waited for at once. The next step needs it.
#
# ## b4e: issue early
#
# The tensor cores are idle while a consumer computes exponentials, unless the other one happens to multiply. So
# products are issued before their results are needed, and other work fills the time. With j the step:
#
# | issued | a consumer meanwhile |
# |---|---|
# | S of j | waits for the other consumer's dS of j - 1 |
# | dQ and dK of j - 1 | computes the exponentials of j |
# | dP of j | waits |
# | dV of j | exchanges dS of j through shared memory |
#
# So the loop begins and ends in the middle of a step. In b4d both consumers meet at a barrier before dQ. Here a warp
# *arrives* at an mbarrier when its dS is stored, goes on, and waits there only after it has issued its next S:

# %%
lessons.source(
    "b4e_overlap", "// S^T of this step first: dQ and dK of the previous step", "warpgroup::mma_wait(dk);"
)

# %%
# %exercise b4_tell

# %% [markdown]
# ## b4f: halves
#
# A consumer still waits for dP, and its dV is issued only after all of dS. At $d = 64$ a tile has 128 queries. b4f
# computes P and dS in two halves of 64: while the exponentials of one half are computed, the products of the other
# run. This wins back what the roles cost. At $d = 128$ a tile has 64 queries, which are one half, and nothing
# changes.

# %%
lessons.source("b4f_halves", "__device__ void compute_ds() {", "issue_dv(A::queries - 64);")

# %% [markdown]
# The source order is not the machine's order: ptxas moves exponentials down, past waits under which they should run,
# unless an issued product needs them. Here the dV of the first half does.
#
# ## b4g: wide additions
#
# `red.global.add.f32` adds 128 bytes per instruction of a warp. An sm_90 has a form that adds four neighbours per
# lane: 512 bytes. The sums may be in any order, so the whole change is one template argument:

# %%
lessons.diff("b4f_halves", "b4g_wide_adds")

# %%
for rung in ("b4f_halves", "b4g_wide_adds"):
    print(f"{rung}: {questions.executed(rung, 'red', questions.GRADIENTS):,} additions to dQ")

# %% [markdown]
# ## What is left
#
# Shared memory is the limit. Per step at $d = 64$ it is needed for 2,816 clocks, and the tensor cores for 2,560
# ([b4's README](../stages/b4_wgmma/README.md) counts them). Persistent blocks, which help the forward pass, were
# tried here and lose under a causal mask: the fixed order of work items is worse than a grid, whose blocks start on
# whichever SM is free. And the last bits of dQ differ from run to run: deterministic gradients on `wgmma` are not in
# this ladder.

# %% [markdown]
# **Practise:** the exercises begin with `b4_`. **Read on:** the READMEs of [b4](../stages/b4_wgmma/README.md),
# [b4e](../stages/b4e_overlap/README.md) and [b4g](../stages/b4g_wide_adds/README.md), with what was tried. **Next:**
# [18, attention without a softmax](18_h1_silu.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/17_b4_wgmma.ipynb).
