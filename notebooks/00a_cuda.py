# %% [markdown]
# # 00a CUDA from the beginning
#
# For people who know C++ and have never seen CUDA. In four steps, each a program and an exercise, you meet all that
# the other lessons take for granted: threads, blocks, barriers, shared memory, warps. It takes about an hour. If you
# know these, go on with [00](00_attention.ipynb).
#
# Your machine needs no GPU. NVIDIA's compiler compiles the programs, and an emulator runs the result: a mistake that a
# GPU would punish is an error here, and the error says where.

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
from ladder import lessons

# %% [markdown]
# ## 1. Threads, and an index
#
# A *kernel* is a function that many threads run at once. `__global__` marks it, and `<<<blocks, threads>>>` launches
# it: that many *blocks*, of that many *threads* each, form the *grid*. All threads execute the same lines. What tells
# one from another is its index:
#
# | in a kernel | is |
# |---|---|
# | `threadIdx.x` | the number of the thread in its block |
# | `blockIdx.x` | the number of the block in the grid |
# | `blockDim.x` | the threads in a block |
#
# A cell that begins with `%%cuda` compiles and runs a program. Here 2 blocks of 4 threads square 8 numbers, one each.
# `cudaMallocManaged` gives memory that both the CPU and the kernel may use. It is the GPU's *global memory*.

# %% language="cuda"
# #include <cstdio>
#
# __global__ void square(float *x) {
#   const int i = blockIdx.x * blockDim.x + threadIdx.x;
#   x[i] = x[i] * x[i];
# }
#
# int main() {
#   float *x;
#   cudaMallocManaged(&x, 8 * sizeof(float));
#   for (int i = 0; i < 8; i++)
#     x[i] = i;
#   square<<<2, 4>>>(x);     // returns at once
#   cudaDeviceSynchronize(); // waits for the kernel
#   for (int i = 0; i < 8; i++)
#     std::printf("%g ", x[i]);
#   std::printf("\n");
#   cudaFree(x);
# }

# %% [markdown]
# Below the program's own output is what the emulator counted. You need none of it yet.
#
# With 128 threads a block, which element does thread 3 of block 2 take?

# %%
element = None
lessons.predict("element_of_thread", element)

# %% [markdown]
# A grid has whole blocks. 1000 elements with 128 threads a block take 8 blocks. How many threads have no element?

# %%
threads_without_element = None
lessons.predict("threads_without_element", threads_without_element)

# %% [markdown]
# ### Exercise: add two vectors
#
# 1000 elements, 8 blocks of 128 threads. Write the kernel: find `i`, and let a thread without an element do nothing. Run the
# cell as often as you like. Leave the `if` out once, and see what you are told.

# %% language="cuda"
# #include <cstdio>
#
# __global__ void add(const float *a, const float *b, float *sum, int n) {
#   // your lines
# }
#
# int main() {
#   const int n = 1000;
#   float *a, *b, *sum;
#   cudaMallocManaged(&a, n * sizeof(float));
#   cudaMallocManaged(&b, n * sizeof(float));
#   cudaMallocManaged(&sum, n * sizeof(float));
#   for (int i = 0; i < n; i++) {
#     a[i] = i;
#     b[i] = 3 * i + 1;
#   }
#   add<<<8, 128>>>(a, b, sum, n);
#   cudaDeviceSynchronize();
#   int i = 0;
#   while (i < n && sum[i] == a[i] + b[i])
#     i++;
#   if (i < n)
#     std::printf("not yet: sum[%d] is %g, should be %g\n", i, sum[i], a[i] + b[i]);
#   else
#     std::printf("right\n");
#   cudaFree(a);
#   cudaFree(b);
#   cudaFree(sum);
# }

# %% [markdown]
# ## 2. A block, and a barrier
#
# The threads of one block run on the same *streaming multiprocessor* (SM), one of the GPU's processors, and can work together.
# Blocks cannot: they run in any order, on any SM, and know nothing of each other.
#
# Threads of a block do not run in step. One may be far ahead of another. Where that matters there is a *barrier*,
# `__syncthreads()`: no thread goes on before all threads of the block have arrived.
#
# ## 3. Shared memory
#
# To work together they need a place. `__shared__` declares memory of the block: it is small, about 100 KB on an SM,
# and near. Global memory is gigabytes, and hundreds of cycles away. The kernels of the ladder work on *tiles*, small
# rectangles of a matrix, and every tile comes through shared memory.
#
# This program reverses each group of 128 numbers. Every thread writes one number to shared memory and reads another,
# which some other thread wrote. The barrier is between the two.

# %% magic_args="--check" language="cuda"
# #include <cstdio>
#
# __global__ void reverse(float *x) {
#   __shared__ float tile[128];               // one array for each block
#   const int i = blockIdx.x * 128 + threadIdx.x;
#   tile[threadIdx.x] = x[i];
#   __syncthreads();                          // all have written
#   x[i] = tile[127 - threadIdx.x];
# }
#
# int main() {
#   float *x;
#   cudaMallocManaged(&x, 256 * sizeof(float));
#   for (int i = 0; i < 256; i++)
#     x[i] = i;
#   reverse<<<2, 128>>>(x);
#   cudaDeviceSynchronize();
#   std::printf("%g %g ... %g, %g ... %g\n", x[0], x[1], x[127], x[128], x[255]);
#   cudaFree(x);
# }

# %% [markdown]
# `%%cuda --check` runs the program under the *sanitizer*, which watches every access to memory: it knows who wrote each
# word, and whether there was a barrier in between.
# Take the `__syncthreads()` out and run it again. The numbers may still be right, on a GPU for years: that is the
# trouble with a *race*.
#
# ### Exercise: the difference from the neighbour
#
# Each thread is to write `x[i] - x[i - 1]` within its block of 128, and the first of a block `x[i]` itself. Global
# memory is read once for each element: the neighbour's value comes from shared memory. You want to see both `right`
# and `clean`.

# %% magic_args="--check" language="cuda"
# #include <cstdio>
#
# __global__ void difference(const float *x, float *out) {
#   __shared__ float tile[128];
#   const int i = blockIdx.x * 128 + threadIdx.x;
#   const float own = x[i];
#   // your lines
# }
#
# int main() {
#   float *x, *out;
#   cudaMallocManaged(&x, 256 * sizeof(float));
#   cudaMallocManaged(&out, 256 * sizeof(float));
#   for (int i = 0; i < 256; i++) {
#     x[i] = i * i;
#     out[i] = NAN; // what no thread writes stays so
#   }
#   difference<<<2, 128>>>(x, out);
#   cudaDeviceSynchronize();
#   const auto wanted = [&](int i) { return i % 128 == 0 ? x[i] : x[i] - x[i - 1]; };
#   int i = 0;
#   while (i < 256 && out[i] == wanted(i))
#     i++;
#   if (i < 256)
#     std::printf("not yet: out[%d] is %g, should be %g\n", i, out[i], wanted(i));
#   else
#     std::printf("right\n");
#   cudaFree(x);
#   cudaFree(out);
# }

# %% [markdown]
# ## 4. A warp, and a shuffle
#
# The hardware runs threads in groups of 32, a *warp*. Its threads are called *lanes*: lane 0 to lane 31, `threadIdx.x % 32`. A warp
# executes an instruction for all of its lanes at once, and lanes can read each other's registers, without any memory, by a
# *shuffle*:
#
# | call | what a lane gets |
# |---|---|
# | `__shfl_sync(mask, x, lane)` | the `x` of that lane |
# | `__shfl_down_sync(mask, x, step)` | the `x` of the lane `step` further on |
# | `__shfl_xor_sync(mask, x, bits)` | the `x` of the lane whose number differs in these bits |
#
# `mask` says who takes part, a bit a lane; `0xffffffff` is all of them. The sum of 32 numbers, in a few steps: each lane adds what
# the lane 16 further on has, then 8, then 4, ...

# %% language="cuda"
# #include <cstdio>
#
# __global__ void sum(const float *x, float *result) {
#   float total = x[threadIdx.x];
#   for (int step = 16; step > 0; step /= 2)
#     total += __shfl_down_sync(0xffffffff, total, step);
#   if (threadIdx.x == 0) // the others have sums of too few, or of too many
#     *result = total;
# }
#
# int main() {
#   float *x, *result;
#   cudaMallocManaged(&x, 32 * sizeof(float));
#   cudaMallocManaged(&result, sizeof(float));
#   for (int i = 0; i < 32; i++)
#     x[i] = i + 1;
#   sum<<<1, 32>>>(x, result);
#   cudaDeviceSynchronize();
#   std::printf("%g\n", *result);
#   cudaFree(x);
#   cudaFree(result);
# }

# %% [markdown]
# How many times does each lane add?

# %%
steps = None
lessons.predict("steps_of_a_sum", steps)

# %% [markdown]
# ### Exercise: the largest, for everybody
#
# Make `x[i]` the largest of the 32 numbers, in all lanes. With `__shfl_xor_sync` no lane is left out: after the step
# with 16 each pair of lanes that differ in that bit has the larger of the two. Softmax needs this for each row.

# %% language="cuda"
# #include <cstdio>
#
# __global__ void largest(float *x) {
#   float most = x[threadIdx.x];
#   // your lines; fmaxf(a, b) is the larger one
#   x[threadIdx.x] = most;
# }
#
# int main() {
#   float *x;
#   cudaMallocManaged(&x, 32 * sizeof(float));
#   for (int i = 0; i < 32; i++)
#     x[i] = i * 7 % 32;
#   largest<<<1, 32>>>(x);
#   cudaDeviceSynchronize();
#   int lane = 0;
#   while (lane < 32 && x[lane] == 31)
#     lane++;
#   if (lane < 32)
#     std::printf("not yet: lane %d has %g, should have 31\n", lane, x[lane]);
#   else
#     std::printf("right\n");
#   cudaFree(x);
# }

# %% [markdown]
# ## What you can read now
#
# | | is | shares |
# |---|---|---|
# | **lane** | one of the 32 threads of a warp | registers, by shuffles |
# | **warp** | 32 lanes that execute an instruction together | |
# | **block** | up to 32 warps on one SM | shared memory, and barriers |
# | **grid** | all blocks of a launch | global memory |
#
# [00](00_attention.ipynb) has all of this in one program. Words are explained in the [glossary](../docs/glossary.md).
# More programs like these, without attention in them: `!ladder exercise list`.
#
# **Next:** [00, attention, memory and the machine](00_attention.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/00a_cuda.ipynb).
