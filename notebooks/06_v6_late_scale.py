# %% [markdown]
# # 06 v6_late_scale and v6e_parts: fewer instructions per score
#
# The warps hardly wait for copies any more. What is left between the two products is the softmax. These rungs make it
# cheaper per score. They reach the speed of FlashAttention-2, with the same tensor-core instruction
# (`mma.sync`, the `mma` of lesson 02). You need lessons 02, 04 and 05.

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

# %% [markdown]
# ## What a score costs
#
# A *score* is an element of S. These are the instructions that a warp executes per score:

# %%
gallery.instructions()

# %% [markdown]
# (These are PTX instructions, before `ptxas` makes machine code of them.) The products and `ldmatrix` are the same in
# all three, and the exponentials are nearly the same. The rest can be reduced.
#
# ## Unrolling
#
# The cheapest way to fewer instructions is to let the compiler repeat the body of a loop: then the counter, the test and
# the branch are executed once for several keys, and addresses become constants. Here the two loops over a row of 96
# scores are unrolled not at all, four times, and completely:

# %% language="cuda"
# #include <cstdio>
#
# constexpr int kKeys = 96;
#
# // One row of S per thread: the running maximum and the sum of exp2(s - m) over kKeys keys in registers or not.
# template <int kUnroll> __global__ void softmax_sum(const float *s, float *sum) {
#   const float *row = s + threadIdx.x;
#   float m = -INFINITY, l = 0.f;
# #pragma unroll kUnroll
#   for (int key = 0; key < kKeys; ++key)
#     m = fmaxf(m, row[key * 32]);
# #pragma unroll kUnroll
#   for (int key = 0; key < kKeys; ++key)
#     l += exp2f(row[key * 32] - m);
#   sum[threadIdx.x] = l;
# }
#
# int main() {
#   float *s, *sum;
#   cudaMallocManaged(&s, kKeys * 32 * sizeof(float));
#   cudaMallocManaged(&sum, 32 * sizeof(float));
#   for (int i = 0; i < kKeys * 32; ++i)
#     s[i] = i % 7;
#   softmax_sum<1><<<1, 32>>>(s, sum);
#   softmax_sum<4><<<1, 32>>>(s, sum);
#   softmax_sum<kKeys><<<1, 32>>>(s, sum);
#   cudaDeviceSynchronize();
#   std::printf("sum of row 0: %g\n", sum[0]);
# }

# %% [markdown]
# Completely unrolled, a score costs 5 instructions where it cost 14. The sectors tell the second reason: only then do the
# scores stay in registers between the two loops, since registers have no addresses that a loop could count up. That is
# why all loops over fragments are unrolled in every rung from v2 on, and why the loop over tiles is not: its body is long
# enough.
#
# ## v6_late_scale: the scale after the maximum
#
# v5 multiplies each score by the scale and then subtracts the maximum. But for a positive scale
# $\max(c\,s) = c \max(s)$, so the maximum can be taken of raw scores, and $2^{c s - m}$ is **one** fused multiply-add and
# one exponential. `late_scale` is this $c$, with $\log_2 e$ in it. What if the scale is 0, or negative?

# %%
# %exercise v6_late_scale

# %% [markdown]
# ## Most tiles do not rescale
#
# [Lesson 01](01_v1_minimal.ipynb) has a picture of one row: after the first tiles its maximum hardly grows. And what
# is subtracted from the scores need not be their maximum, only near it: O and $l$ have the same factor, and it
# cancels. So v6 also keeps the old $m$ as long as the new maximum exceeds it by no more than `kSlack`, a factor of 16 in
# the weights.
#
# A warp executes an instruction for all its lanes or for none. So the decision is one *vote* of the warp: if any of
# its 16 rows has grown too much, all of them are rescaled. One of sixteen rows grows more often than a single row
# does.

# %%
lessons.source("v6", "if (any_above(m_new, rows.m, kSlack)) {", "sub_row(s, s, rows.m);")

# %% [markdown]
# How often does the vote say yes? One block has 16 warps, and 960 keys are 20 tiles:

# %%
line = lessons.line_of("v6", "max_over_lanes(m_new);")
instructions = questions.launch_of("v6", questions.MANY_TILES).instructions()
yes = instructions[instructions["kernel_line"] == line]["executed"].max()
print(f"rescaled: {yes} of {16 * 20} tiles")

# %% [markdown]
# ## Half a reduction
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
lessons.source("v6", "mma_AB(o, p_16, v_smem[now], o);", "div_row(o, o, rows.l);")

# %% [markdown]
# ## v6e_parts: 32 rows per warp
#
# A fragment of K is 256 bytes. With 16 rows per warp it feeds one `mma` of 4096 operations. Shared memory delivers
# 128 bytes per clock, so an SM reaches 2048 operations per clock at most. `mma.sync` could do 2704 on an H200
# (`results/h200/ceilings.csv`). With 32 rows per warp each fragment serves twice. That takes twice the registers, so
# a block has fewer warps. v6e does it at $d = 128$:

# %%
rungs = ["v6", "v6e"]
wide = ladder.compare(ladder.Problem(1, 2, 256, 256, 128), rungs, backend="emulator")
lessons.counts(wide).loc[["ldmatrix", "mma"]]

# %% [markdown]
# ## Several tiles per buffer
#
# A buffer of v5 has one tile of K and one tile of V, and each buffer needs a barrier. v6e's buffers hold several tiles,
# the *parts*, as far as they fit in shared memory: one barrier for all of them.
#
# ## What they buy
#
# TFLOP/s on an H200 (B = 4, H = 16, N = M = 4096, bf16):

# %%
rungs = ["v5", *rungs]
lessons.measured([*rungs, "torch flash", "torch cuDNN"])

# %% [markdown]
# torch's flash backend is FlashAttention-2. cuDNN is above what any kernel with `mma.sync` reaches: it uses `wgmma`,
# which only Hopper has. On the GPU of this machine, if it has one:

# %%
lessons.times(rungs)

# %% [markdown]
# **The bottleneck that the next rung removes:** registers. `mma.sync` holds its operands in a warp's registers, and
# none are left to keep more work in flight.
#
# **Practise:** the exercises of this rung begin with `v6_`. **Read on:** the READMEs of
# [v6](../stages/v6_late_scale/README.md) to [v6e](../stages/v6e_parts/README.md). **Next:** [07, products of a
# warpgroup](07_v7_wgmma.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/06_v6_late_scale.ipynb).
