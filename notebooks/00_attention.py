# %% [markdown]
# # 00 Attention, memory and the machine
#
# [![Open in
# Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/00_attention.ipynb)

# %%
# On Colab this installs the project, which takes a few minutes. Where it is installed, nothing happens.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("ladder") is None:
    project = "flash-ladder @ git+https://github.com/flash-ladder/flash-ladder"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", project], check=True)

# %% [markdown]
# You will climb a ladder of attention kernels, each with one idea more than the one before. This lesson is
# about what they all compute, why doing it well is a question of *memory*, and about the one piece of the
# machine that needs most care: the banks of shared memory.
#
# Everything here runs on a laptop. Kernels are compiled by NVIDIA's compiler, and where there is no GPU an
# emulator executes the result instruction by instruction. It counts what the hardware's counters count, and
# claims no times. Where there is a GPU, the same cells use it.

# %%
import math
import tempfile
from pathlib import Path

import torch

import ladder
from ladder import banks
from ladder.lessons import teaching
from ladder.plots import access_picture

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
o, lse = ladder.attention(q, k, v, stage="v1_minimal")
print(f"largest difference: {(o - by_hand).abs().max():.1e}")

# %% [markdown]
# `lse` is $\log \sum_j e^{s_{ij}}$, which the backward pass needs; you will meet it again.
#
# ## The matrix that nobody wants
#
# `scores` has $N \times M$ numbers for each head. Take a batch of 4 sequences, 16 heads, $N = M = 4096$ and
# fp32 (4 bytes). How many GiB ($2^{30}$ bytes) is $S$?

# %%
gib_of_s = None

# %%
teaching.check(
    gib_of_s,
    4 * 16 * 4096 * 4096 * 4 / 2**30,
    hint="4 sequences, times 16 heads, times 4096 x 4096 scores, times 4 bytes.",
    because="Q, K, V and O together are 0.25 GiB at d = 64 in fp32: the intermediate result is 16 times as large "
    "as all inputs and outputs.",
)

# %% [markdown]
# Worse than the room it takes is the way it has to go. A GPU does hundreds of arithmetic operations in the
# time in which one number comes from its memory. Attention needs $4NMd$ operations for a head ($2NMd$ in
# each product), and if $S$ and $P$ are written to memory and read back in fp32, about $16NM$ bytes go over
# the bus:
#
# $$ \frac{\text{operations}}{\text{bytes}} = \frac{4NMd}{16NM} = \frac d4. $$
#
# That is 16 operations a byte at $d = 64$, however long the sequences are, and the GPU waits for its
# memory. Without $S$ and $P$ only $Q$, $K$, $V$, $O$ are moved, $8(N + M)d$ bytes in fp32, which gives
# $NM / (2(N + M))$: for $N = M$ that is $N / 4$, and it *grows with the sequence*. So the idea of
# FlashAttention: never write $S$ down. How that is possible although softmax needs whole rows, is
# [the next lesson](01_v1_minimal.ipynb).
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
# that every thread of a grid runs. `<<<blocks, threads, bytes>>>` launches it: so many blocks, so many threads in each,
# and so many bytes of shared memory that is declared without a size.

# %%
program = Path(tempfile.mkdtemp()) / "row_sums.cu"
program.write_text(r"""
#include <cstdio>

__global__ void row_sums(const float *matrix, float *sums) {    // a kernel
  extern __shared__ float sum_of_warp[];                        // one array, seen by all threads of the block
  const int row = blockIdx.x;                                   // which block of the grid this is
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;   // which of its threads
  float sum = matrix[row * blockDim.x + threadIdx.x];           // global memory
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_down_sync(0xffffffff, sum, step);             // a shuffle: the sum of the lane `step` further on
  if (lane == 0)
    sum_of_warp[warp] = sum;
  __syncthreads();                                              // a barrier: nobody goes on before all are here
  if (threadIdx.x == 0) {
    float sum_of_row = 0;
    for (int w = 0; w < blockDim.x / 32; w++)
      sum_of_row += sum_of_warp[w];
    sums[row] = sum_of_row;
  }
}

int main() {
  float *matrix, *sums;
  cudaMallocManaged(&matrix, 4 * 128 * sizeof(float));
  cudaMallocManaged(&sums, 4 * sizeof(float));
  for (int i = 0; i < 4 * 128; i++)
    matrix[i] = i / 128 + 1;
  row_sums<<<4, 128, 4 * sizeof(float)>>>(matrix, sums);        // 4 blocks of 128 threads
  cudaDeviceSynchronize();                                      // a launch returns at once: wait for its end
  std::printf("%g %g %g %g\n", sums[0], sums[1], sums[2], sums[3]);
  cudaFree(matrix);
  cudaFree(sums);
}
""")
emulate = [sys.executable, "-m", "ladder", "emulate", str(program)]
print(subprocess.run(emulate, capture_output=True, text=True, check=True).stdout)

# %% [markdown]
# `ladder emulate` runs any program like this without a GPU and counts what its kernels do. Threads of a warp that
# hand something to each other through memory need a barrier too, a cheap one, `__syncwarp()`: lanes need not run in
# step. What a missing barrier does is up to chance, but `--check` finds it:

# %%
program.write_text(program.read_text().replace("__syncthreads();", "/* nothing */;"))
checked = subprocess.run([*emulate, "--check"], capture_output=True, text=True)
print(checked.stdout)

# %% [markdown]
# For a rung the same is `ladder check`. Words that are not explained here are in the
# [glossary](../docs/glossary.md).
#
# ## Where the time goes
#
# A kernel brings a *tile* of K and V from global into shared memory once, and all warps of the block use
# it many times. So shared memory is the place through which everything goes, and its speed is that of the
# kernel. And it has a structure.
#
# ## Thirty-two banks
#
# Shared memory is 32 banks of 4-byte words. Word $w$ lies in bank $w \bmod 32$, and each bank gives one
# word at a time. A *wavefront* is one such time step. When the 32 lanes of a warp ask for words
#
# - in 32 different banks, one wavefront serves them all;
# - that are the same word, one wavefront too: the word goes to everybody;
# - that are different words of the same bank, they wait for each other. Each wavefront that this adds is a
#   **bank conflict**.
#
# Let lane $i$ read word $i$, byte $4i$. The picture shows the banks from left to right; in each box is the
# lane that it serves.

# %%
access_picture(banks.explore("ld", "lane * 4").service, "lane i reads word i")

# %% [markdown]
# Now every second word: lane $i$ reads word $2i$. How many bank conflicts has this load?

# %%
conflicts_of_every_second_word = None

# %%
every_second = banks.explore("ld", "lane * 8")
teaching.check(
    conflicts_of_every_second_word,
    every_second.service.conflicts,
    hint="Which banks are used? How many different words does each of them have to give? The first costs nothing.",
    because="Only the 16 even banks are used, each is asked for two words, so two wavefronts: one more than needed.",
)

# %% [markdown]
# And a column of a matrix with rows of 32 words: lane $i$ reads word $32i$.

# %%
conflicts_of_a_column = None

# %%
column = banks.explore("ld", "lane * 32 * 4")
teaching.check(
    conflicts_of_a_column,
    column.service.conflicts,
    hint="32 i mod 32 is the bank.",
    because="All 32 lanes meet in bank 0, each with a word of its own: 32 wavefronts for one load. It is the "
    "worst that can happen, and the most natural thing to write.",
)

# %%
access_picture(column.service, "lane i reads word 32 i")

# %% [markdown]
# One way out is a row that is one word longer, so that the column walks through the banks:

# %%
padded = banks.explore("ld", "lane * 33 * 4")
print(f"rows of 32 words: {column.service.conflicts} conflicts, of 33 words: {padded.service.conflicts}")

# %% [markdown]
# Padding costs memory, and wide accesses want rows that are a multiple of 16 bytes. There is a better way,
# without a wasted byte: the third rung is about it.
#
# Accesses of 16 bytes a lane are served in four *passes* of eight lanes, since a wavefront moves 128
# bytes; a conflict is a wavefront beyond one a pass:

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
table = ladder.compare(ladder.Problem(1, 2, 256, 256, 64), backend="emulator")
teaching.counts(table)

# %% [markdown]
# From left to right you see what the lessons explain. *Bank conflicts* fall from millions to none.
# *Sectors*, the 32-byte pieces that global memory is read and written in, fall because tiles are used more
# often. And *mma*, the instruction of the tensor cores, takes over the arithmetic.
#
# With a GPU in this machine, the same rungs run there, and their times are added:

# %%
teaching.times()

# %% [markdown]
# **Next:** [01, FlashAttention with as little as it takes](01_v1_minimal.ipynb).
