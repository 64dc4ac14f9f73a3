# %% [markdown]
# # 00 Attention, memory and the machine
#
# You will climb a ladder of attention kernels, each with one idea more than the one before. This lesson is
# about what they all compute, why doing it well is a question of *memory*, and about the one piece of the
# machine that needs most care: the banks of shared memory.
#
# Everything here runs on a laptop. Kernels are compiled by NVIDIA's compiler, and where there is no GPU an emulator
# executes the result instruction by instruction. It counts what the hardware's counters count, and does not estimate
# times. If there is a GPU, the same cells use it. The first time, kernels are compiled, and a cell may take a minute.
#
# You need C++ and know what attention is for. If you have never seen CUDA, begin with [00a](00a_cuda.ipynb).

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
import math

import torch

import ladder
from ladder import banks, lessons
from ladder.show.plots import access_picture

# %% [markdown]
# ## Attention
#
# For each head there are $N$ queries $q_i$, $M$ keys $k_j$ and $M$ values $v_j$, all vectors of length
# $d$. The result for query $i$ is an average of the values:
#
# $$ s_{ij} = \frac{q_i \cdot k_j}{\sqrt d}, \qquad p_{ij} = \frac{e^{s_{ij}}}{\sum_{j'} e^{s_{ij'}}}, \qquad
# o_i = \sum_j p_{ij}\, v_j. $$
#
# As matrices: $S = QK^T / \sqrt d$, $P = \mathrm{softmax}(S)$ row by row, $O = PV$. Three lines of torch:

# %%
q, k, v = (torch.randn(1, 2, 256, 64, generator=torch.Generator().manual_seed(n)) for n in range(3))
scores = q @ k.transpose(2, 3) / math.sqrt(64)
weights = torch.softmax(scores, dim=3)
by_hand = weights @ v

# %% [markdown]
# The lowest rung of the ladder computes the same. It is CUDA C++, compiled, and run on the emulator because
# `q` is in the memory of the CPU:

# %%
o, lse = ladder.attention(q, k, v, stage="v1")
print(f"largest difference: {(o - by_hand).abs().max():.1e}")

# %% [markdown]
# `lse` is $\log \sum_j e^{s_{ij}}$, which the backward pass needs; you will meet it again.
#
# ## The matrix that is too large
#
# `scores` has $N \times M$ numbers for each head. Take a batch of 4 sequences, 16 heads, $N = M = 4096$ and
# fp32 (4 bytes). How many GiB ($2^{30}$ bytes) is $S$?

# %%
gib_of_s = None
lessons.predict("size_of_s", gib_of_s)

# %% [markdown]
# Its size is not the main problem. It must also be moved. Attention needs $4NMd$ operations for a head ($2NMd$
# in each product). If $S$ and $P$ are written to memory in 16 bits and read back, about $8NM$ bytes are moved:
#
# $$ \frac{\text{operations}}{\text{bytes}} = \frac{4NMd}{8NM} = \frac d2. $$
#
# That is 32 operations per byte at $d = 64$, however long the sequences are. An H200's tensor cores do about 200
# operations in the time in which its memory delivers one byte (989 TFLOP/s and 4.8 TB/s by its data sheet). So they
# would wait most of the time. (In fp32, without tensor cores, the same H200 does 13.5 operations per byte. There $d /
# 4 = 16$ are enough, and slow arithmetic hides the problem.)
#
# Without $S$ and $P$ only $Q$, $K$, $V$, $O$ are moved, $4(N + M)d$ bytes in 16 bits, which gives $NM / (N + M)$
# operations per byte: for $N = M$ that is $N / 2$, and it *grows with the sequence*. This is the idea of
# FlashAttention: never store $S$. But softmax needs whole rows. How can that work? [Lesson 01](01_v1_minimal.ipynb)
# shows it.
#
# ## The machine
#
# | | what it is | how near |
# |---|---|---|
# | **thread, lane** | one of the 32 lanes of a warp; has registers of its own | its operands come from registers |
# | **warp** | 32 lanes that execute an instruction together | exchanges registers by shuffles |
# | **block** | up to 32 warps on one streaming multiprocessor (SM) | shares a piece of *shared memory*, about 100 KB |
# | **grid** | all blocks of a launch | shares *global memory*, gigabytes, hundreds of cycles away |
#
# ## CUDA in one program
#
# This is all of CUDA that the lessons need, in a program that adds up the rows of a matrix. A *kernel* is a function
# that every thread of a grid runs. `<<<blocks, threads, bytes>>>` launches it: the number of blocks, the number of
# threads in each, and the bytes of the shared memory that is declared without a size. [00a](00a_cuda.ipynb) builds it
# up step by step.

# %% language="cuda"
# #include <cstdio>
#
# // A kernel. sum_of_warp is one array, seen by all threads of the block.
# __global__ void row_sums(const float *matrix, float *sums) {
#   extern __shared__ float sum_of_warp[];
#   const int row = blockIdx.x;                                  // which block of the grid
#   const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;  // which of its threads
#   float sum = matrix[row * blockDim.x + threadIdx.x];          // global memory
#   for (int step = 16; step > 0; step /= 2)                     // a shuffle: the sum of
#     sum += __shfl_down_sync(0xffffffff, sum, step);            // the lane `step` further on
#   if (lane == 0)
#     sum_of_warp[warp] = sum;
#   __syncthreads();                                             // no thread passes before all arrive
#   if (threadIdx.x == 0) {
#     float sum_of_row = 0;
#     for (int w = 0; w < blockDim.x / 32; w++)
#       sum_of_row += sum_of_warp[w];
#     sums[row] = sum_of_row;
#   }
# }
#
# int main() {
#   float *matrix, *sums;
#   cudaMallocManaged(&matrix, 4 * 128 * sizeof(float));
#   cudaMallocManaged(&sums, 4 * sizeof(float));
#   for (int i = 0; i < 4 * 128; i++)
#     matrix[i] = i / 128 + 1;
#   row_sums<<<4, 128, 4 * sizeof(float)>>>(matrix, sums);       // 4 blocks of 128 threads
#   cudaDeviceSynchronize();                                     // a launch returns at once: wait
#   std::printf("%g %g %g %g\n", sums[0], sums[1], sums[2], sums[3]);
#   cudaFree(matrix);
#   cudaFree(sums);
# }

# %% [markdown]
# A cell that begins with `%%cuda` runs such a program without a GPU, as `ladder emulate` does in a terminal, and
# counts what its kernels do. Threads that pass data to each other through memory need a barrier. The effect of a
# missing barrier depends on chance, but the sanitizer finds it: `%%cuda --check`, and for a rung `ladder check`.
# (Threads of one warp do not always run in step, so they also need a barrier: `__syncwarp()`, which is cheap.)
#
# Words that are not explained here are in the [glossary](../docs/glossary.md).
#
# ## Where the time goes
#
# A kernel loads a *tile* of K and V from global into shared memory once, and all warps of the block use it many
# times. So everything passes through shared memory, and its speed limits the kernel. This speed depends on the
# addresses.
#
# ## Thirty-two banks
#
# Shared memory has 32 banks of 4-byte words. Word $w$ lies in bank $w \bmod 32$, and each bank delivers one word at a
# time. A *wavefront* is one such time step. If the 32 lanes of a warp access words
#
# - in 32 different banks, one wavefront serves them all;
# - that are the same word, one wavefront is also enough: all lanes receive the word;
# - that are different words of the same bank, they are served one after the other. Each wavefront that this adds is a
#   **bank conflict**.
#
# Let lane $i$ read word $i$, byte $4i$. The picture shows the banks from left to right; in each box is the
# lane that it serves.

# %%
access_picture(banks.explore("ld", "lane * 4").service, "lane i reads word i")

# %% [markdown]
# Now every second word: lane $i$ reads word $2i$. How many bank conflicts does this load cause?

# %%
conflicts_of_every_second_word = None
lessons.predict("every_second_word", conflicts_of_every_second_word)

# %% [markdown]
# And a column of a matrix with rows of 32 words: lane $i$ reads word $32i$.

# %%
conflicts_of_a_column = None
lessons.predict("column", conflicts_of_a_column)

# %%
column = banks.explore("ld", "lane * 32 * 4").service
lessons.after("column", lambda: access_picture(column, "lane i reads word 32 i"))

# %% [markdown]
# One remedy is a row that is one word longer, so that the elements of a column are in different banks:

# %%
padded = banks.explore("ld", "lane * 33 * 4")
print(f"rows of 33 words: {padded.service.conflicts} conflicts")

# %% [markdown]
# Padding costs memory, and wide accesses need rows that are a multiple of 16 bytes. The third rung does without padding.
#
# Accesses of 16 bytes per lane are served in four *passes* of eight lanes, since a wavefront moves 128 bytes. Each
# wavefront beyond one per pass is a conflict:

# %%
access_picture(
    banks.explore("ld", "lane * 16", width=16).service, "lane i reads 16 bytes, one after the other"
)

# %% [markdown]
# Try others: `banks.explore` takes any address that can be written in terms of `lane`, for loads, stores and
# `ldmatrix`, and on the command line it is `ladder bank`.
#
# ## What the ladder measures
#
# Each rung is run, checked against attention in float64, and counted:

# %%
rungs = ["v1", "v2", "v3", "v6"]
lessons.counts(ladder.compare(ladder.Problem(1, 2, 256, 256, 64), rungs, backend="emulator"))

# %% [markdown]
# From left to right you see what the lessons explain, in four of the rungs. *Bank conflicts* fall from millions to none.
# *Sectors*, the 32-byte units in which global memory is read and written, fall because each tile is used more often. And
# *mma*, the instruction of the tensor cores, takes over the arithmetic.
#
# With a GPU in this machine, the same rungs run there, and their times are added:

# %%
lessons.times()

# %% [markdown]
# **Next:** [01, FlashAttention with as little as it takes](01_v1_minimal.ipynb). Run this lesson elsewhere:
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/00_attention.ipynb).
