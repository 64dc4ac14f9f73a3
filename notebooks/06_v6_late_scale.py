# %% [markdown]
# # 06 v6_late_scale and four more: fewer instructions per score
#
# Nobody waits for copies any more. What is left between the two products is the softmax, and these rungs do less of it
# for each score, one idea each. They reach the speed of FlashAttention-2, with the same tensor-core instruction
# (`mma.sync`, the `mma` of lesson 02). You need lessons 02, 04 and 05.

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

# %% [markdown]
# ## What a score costs
#
# A *score* is an element of S. For each of them a warp executes a share of all these instructions:

# %%
gallery.instructions()

# %% [markdown]
# (These are PTX instructions, before `ptxas` makes machine code of them.) The products and `ldmatrix` are the same in
# all three, and the exponentials almost. The rest is what can be saved.
#
# ## v6_late_scale: the scale waits
#
# v5 multiplies each score by the scale and then subtracts the maximum. But for a positive scale
# $\max(c\,s) = c \max(s)$, so the maximum can be taken of raw scores, and $2^{c s - m}$ is **one** fused multiply-add and
# one exponential. `late_scale` is this $c$, with $\log_2 e$ in it. What if the scale is 0, or negative?

# %%
# %exercise v6_late_scale

# %% [markdown]
# ## v6b_lazy_rescale: most tiles do not rescale
#
# [Lesson 01](01_v1_minimal.ipynb) has a picture of one row: after the first tiles its maximum hardly grows. And what
# is subtracted from the scores need not be their maximum, only near it: O and $l$ have the same factor, and it
# cancels. So v6b keeps the old $m$ as long as the new maximum exceeds it by no more than `kSlack`, a factor of 16 in
# the weights.
#
# A warp executes an instruction for all its lanes or for none. So the decision is one *vote* of the warp: if any of its
# 16 rows has grown too much, all of them are rescaled. Sixteen rows together grow more often than one
# does.

# %%
lessons.source("v6b_lazy_rescale", "row_max(m_new, s);", "sub_row(s, s, rows.m);")

# %% [markdown]
# How often does the vote say yes? One block has 16 warps, and 960 keys are 20 tiles:

# %%
line = lessons.line_of("v6c_lane_reductions", "max_over_lanes(m_new);")
instructions = questions.launch_of("v6c_lane_reductions", questions.MANY_TILES).instructions()
yes = instructions[instructions["kernel_line"] == line]["executed"].max()
print(f"rescaled: {yes} of {16 * 20} tiles")

# %% [markdown]
# ## v6c_lane_reductions: half a reduction
#
# ### Predict
#
# A row of S is spread over four lanes, and a lane has parts of two rows. v5 reduces over these lanes for each tile: the
# maximum, and the sum of the weights. How many shuffles does a warp of v5 execute for a tile?

# %%
shuffles = None
lessons.predict("shuffles_of_v5", shuffles)

# %% [markdown]
# None of them is needed in the loop. The vote needs no finished maxima: if any lane has seen a large score, the warp
# rescales. And the sum $l$ is needed only at the end:

# %%
lessons.source("v6c_lane_reductions", "mma_AB(o, p_16, v_smem[now], o);", "div_row(o, o, rows.l);")

# %% [markdown]
# ## v6d_tall_warps: 32 rows per warp
#
# A fragment of K that comes out of shared memory, 256 bytes, feeds one `mma` of 4096 operations when a warp has 16 rows.
# Shared memory hands out 128 bytes a clock, so an SM gets 2048 operations a clock at most, and `mma.sync` could do 2704 on
# an H200 (`results/h200/ceilings.csv`). With 32 rows per warp each fragment serves twice. That takes twice the registers,
# so a block has fewer warps. v6d does it at $d = 128$:

# %%
rungs = ["v6c_lane_reductions", "v6d_tall_warps"]
wide = ladder.compare(ladder.Problem(1, 2, 256, 256, 128), rungs, backend="emulator")
lessons.counts(wide).loc[["ldmatrix", "mma"]]

# %% [markdown]
# ## v6e_parts: several tiles per buffer
#
# A buffer of v5 is a tile of K and one of V, and there is a barrier for each. v6e's buffers hold as many tiles, its
# *parts*, as fit into shared memory: one barrier for all of them.
#
# ## What they buy
#
# TFLOP/s on an H200 (B = 4, H = 16, N = M = 4096, bf16), of those that were measured:

# %%
rungs = ["v5_async", "v6_late_scale", "v6b_lazy_rescale", *rungs, "v6e_parts"]
lessons.measured([*rungs, "torch flash", "torch cuDNN"])

# %% [markdown]
# torch's flash backend is FlashAttention-2. cuDNN is above what any kernel with `mma.sync` reaches: it uses `wgmma`, which
# only Hopper has. On the GPU of this machine, if it has one:

# %%
lessons.times(rungs)

# %% [markdown]
# **The bottleneck that the next rung removes:** registers. `mma.sync` holds its operands in a warp's registers, and
# none are left to keep more work in flight.
#
# **Practise:** the exercises of this rung begin with `v6_`. **Read on:** the last rung's
# [kernel](../stages/v6e_parts/kernel.cu). **Next:** [07, products of a warpgroup](07_v7_wgmma.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/06_v6_late_scale.ipynb).
