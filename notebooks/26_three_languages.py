# %% [markdown]
# # 26 One softmax in CUDA, Triton and Numba
#
# The emulator runs PTX, whichever compiler wrote it. This lesson counts the same row softmax in three languages. The
# bank conflicts of CUDA and Numba are those of your addresses. Triton chooses the addresses for you.
#
# The cells for Triton and Numba need their compilers, but no GPU: `pip install flash-ladder[triton]` and
# `pip install flash-ladder[numba]`. Without them these cells say so, and the rest of the lesson runs.

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
from importlib.util import find_spec

import numpy as np

import ladder
from ladder import banks, lessons
from ladder.lessons.magics import run_program

ROWS, COLUMNS = 8, 300
x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
wanted = np.exp(x) / np.exp(x).sum(1, keepdims=True)

# %% [markdown]
# ## CUDA
#
# One block of 128 threads per row. Each thread sums its columns. Then the block adds the 128 partial sums in shared
# memory, as a tree: in step 1 pairs, in step 2 pairs of pairs. The values are small, so the maximum is left out.

# %%
PROGRAM = r"""
#include <cstdio>

__global__ void softmax(const float *x, float *y, int columns) {
  __shared__ float part[128];
  const int t = threadIdx.x;
  x += blockIdx.x * columns;
  y += blockIdx.x * columns;
  float sum = 0;
  for (int c = t; c < columns; c += 128)
    sum += expf(x[c]);
  part[t] = sum;
  __syncthreads();
  for (int step = 1; step < 128; step *= 2) {
    const int i = 2 * step * t;
    if (i < 128)
      part[i] += part[i + step];
    __syncthreads();
  }
  for (int c = t; c < columns; c += 128)
    y[c] = expf(x[c]) / part[0];
}

int main() {
  const int rows = 8, columns = 300;
  float *x, *y;
  cudaMallocManaged(&x, rows * columns * sizeof(float));
  cudaMallocManaged(&y, rows * columns * sizeof(float));
  for (int i = 0; i < rows * columns; ++i)
    x[i] = i % 7;
  softmax<<<rows, 128>>>(x, y, columns);
  cudaDeviceSynchronize();
  float sum = 0;
  for (int c = 0; c < columns; ++c)
    sum += y[c];
  printf("row 0 adds up to %.3f\n", sum);
}
"""

# %% [markdown]
# ## Predict
#
# All conflicts are in the line of the tree, and the addresses alone decide them. In step 1, thread $t$ loads the words
# $2t$ and $2t + 1$, and stores the word $2t$. Two warps have work:

# %%
for step in (1, 2, 4, 8, 16, 32, 64):
    words = f"2 * {step} * t"
    print(f"step {step:2}: active threads {64 // step:2}, words {words} and {words} + {step}")

# %% [markdown]
# The explorer shows the cost of one such access. This is a load of one warp in step 1:

# %%
print(banks.explore("ld.b32", "4 * (2 * 1 * lane)").service.conflicts, "conflict")

# %% [markdown]
# A tree of one block has seven steps. Each step has two loads and one store per warp with active threads. How many bank
# conflicts does the tree of one row have, loads and stores together? In step 4 and later fewer than 32 lanes are active:
# pass `lambda lane: 4 * 8 * lane if lane < 16 else None` as the address.

# %%
conflicts_of_a_tree = None
lessons.predict("conflicts_of_a_tree", conflicts_of_a_tree)

# %% [markdown]
# The emulator counts eight rows:

# %%
lessons.after("conflicts_of_a_tree", lambda: run_program("", PROGRAM))

# %% [markdown]
# ## Numba
#
# The same kernel in Python. `ladder.counting` runs the kernels that its block launches, and keeps their counts. The
# conflicts are in one line of the Python source:

# %%
if find_spec("numba"):
    from numba import cuda, float32

    @cuda.jit
    def softmax_numba(x, y):
        part = cuda.shared.array(128, float32)
        t, row = cuda.threadIdx.x, cuda.blockIdx.x
        total = float32(0)
        for c in range(t, x.shape[1], 128):
            total += math.exp(x[row, c])
        part[t] = total
        cuda.syncthreads()
        step = 1
        while step < 128:
            if 2 * step * t < 128:
                part[2 * step * t] += part[2 * step * t + step]
            cuda.syncthreads()
            step *= 2
        for c in range(t, x.shape[1], 128):
            y[row, c] = math.exp(x[row, c]) / part[0]

    y = np.empty_like(x)
    with ladder.counting() as of_numba:
        softmax_numba[ROWS, 128](x, y)
    lines = of_numba.launches[0].lines()
    print("right:", np.allclose(y, wanted, atol=1e-6))
    print("lines with conflicts:", (lines["conflicts"] > 0).sum())
else:
    print("Numba is not installed: pip install flash-ladder[numba]")

# %% [markdown]
# ## Triton
#
# A Triton program says what a block computes, not which thread does it. There is no shared memory in the source, and
# no thread index. `tl.sum` is the tree. The compiler reduces within each warp by shuffles, which use no shared memory,
# and passes one number per warp through shared memory:

# %%
if find_spec("triton"):
    import os

    # Without it Triton warns that its default will change.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def softmax_triton(x, y, columns, BLOCK: tl.constexpr):
        c = tl.arange(0, BLOCK)
        row = tl.program_id(0) * columns
        powers = tl.exp(tl.load(x + row + c, c < columns, -float("inf")))
        tl.store(y + row + c, powers / tl.sum(powers, 0), c < columns)

    y = torch.empty(ROWS, COLUMNS)
    with ladder.counting() as of_triton:
        softmax_triton[(ROWS,)](torch.from_numpy(x), y, COLUMNS, BLOCK=512)
    print("right:", np.allclose(y.numpy(), wanted, atol=1e-6))
else:
    print("Triton is not installed: pip install flash-ladder[triton]")

# %% [markdown]
# ## Side by side
#
# These are the counts of the eight rows. The tree costs in Numba what it costs in CUDA: the same addresses, whoever
# wrote the PTX.

# %%
COLUMNS_SHOWN = ["shared_load_instructions", "shared_store_instructions", "conflicts_ld", "conflicts_st"]


def side_by_side():
    if find_spec("numba"):
        print("Numba ", of_numba.table()[COLUMNS_SHOWN].iloc[0].to_dict())
    if find_spec("triton"):
        print("Triton", of_triton.table()[COLUMNS_SHOWN].iloc[0].to_dict())


lessons.after("conflicts_of_a_tree", side_by_side)

# %% [markdown]
# ## The repair
#
# Let the active threads be neighbours: thread $t$ adds the word $t + \text{step}$ to the word $t$, with steps from 64
# down to 1. Then a warp's lanes access consecutive words. Words of one access are never in the same bank:

# %% language="cuda"
# #include <cstdio>
#
# __global__ void row_sums(const float *x, float *sums, int columns) {
#   __shared__ float part[128];
#   const int t = threadIdx.x;
#   float sum = 0;
#   for (int c = t; c < columns; c += 128)
#     sum += x[blockIdx.x * columns + c];
#   part[t] = sum;
#   __syncthreads();
#   for (int step = 64; step > 0; step /= 2) {
#     if (t < step)
#       part[t] += part[t + step];
#     __syncthreads();
#   }
#   if (t == 0)
#     sums[blockIdx.x] = part[0];
# }
#
# int main() {
#   const int rows = 8, columns = 300;
#   float *x, *sums;
#   cudaMallocManaged(&x, rows * columns * sizeof(float));
#   cudaMallocManaged(&sums, rows * sizeof(float));
#   for (int i = 0; i < rows * columns; ++i)
#     x[i] = 1;
#   row_sums<<<rows, 128>>>(x, sums, columns);
#   cudaDeviceSynchronize();
#   printf("%.0f ... %.0f\n", sums[0], sums[rows - 1]);
# }

# %% [markdown]
# In CUDA and Numba this is your work, and the counts tell you where. In Triton the compiler does it, and the counts tell
# you whether it did it well: a transpose or a `tl.dot` may have conflicts that no line of your source shows.
#
# ## What is left
#
# The new tree has no conflicts. But in six of its seven steps only one warp has work, and the others wait at the barrier.
# Within a warp, shuffles need neither shared memory nor a barrier. Triton's compiler uses them. **Practise:**
# `cuda_warp_sum`, then `cuda_block_sum`.
#
# These kernels leave out the maximum. With large values they overflow, so a complete softmax has a second reduction, or
# uses the online softmax of [01](01_v1_minimal.ipynb).
#
# Counts are not times. Whether conflicts limit a kernel is measured on a GPU, with its times and with `ladder profile`.
#
# **Read on:** [docs/any_cuda.md](../docs/any_cuda.md): what of PyTorch, Triton, Numba and CUDA's libraries runs without a
# GPU. Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/26_three_languages.ipynb).
