# %% [markdown]
# # 00a CUDA from the beginning
#
# For people who know C++ and have never seen CUDA. You meet what all other lessons take for granted: threads, blocks,
# shared memory, barriers, warps. There are 22 small exercises, from a kernel of one line to two bugs that you hunt.
# The first five take about an hour, and then you can go on with [00](00_attention.ipynb) and come back for the rest.
#
# Your machine needs no GPU. NVIDIA's compiler compiles the programs, and an emulator runs the result. A mistake that a
# GPU would punish, or hide for years, is an error here, and the error names the line.

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
from ladder import lessons

# %% [markdown]
# ## How an exercise works
#
# A cell with `%exercise NAME` shows a task and a picture. Run it: the cell turns into the lines that you are to write.
# Change them and run the cell again. The check says what is wrong, or shows the solution beside yours and the counters.
# `!ladder exercise hint NAME` gives a hint, one more each time. The same works in a terminal and your own editor:
# `ladder exercise start`, then `ladder exercise check`.
#
# On the site, a link below each exercise leads to a page that runs right and wrong answers in the browser: nothing needs to be
# installed.
#
# ## 1. Threads, and an index
#
# A *kernel* is a function that many threads run at once. `__global__` marks it, and `<<<blocks, threads>>>` launches
# it: that many *blocks*, of that many *threads* each, form the *grid*. All threads execute the same lines. They
# differ in their index:
#
# | in a kernel | is |
# |---|---|
# | `threadIdx.x` | the number of the thread in its block |
# | `blockIdx.x` | the number of the block in the grid |
# | `blockDim.x` | the threads per block |
# | `gridDim.x` | the blocks of the grid |

# %%
lessons.drawing("threads")

# %% [markdown]
# A cell that begins with `%%cuda` compiles and runs a program. Here 2 blocks of 4 threads say who they are.

# %% language="cuda"
# #include <cstdio>
#
# __global__ void hello() {
#   printf("block %d of %d, thread %d of %d\n", blockIdx.x, gridDim.x, threadIdx.x, blockDim.x);
# }
#
# int main() {
#   hello<<<2, 4>>>();       // returns at once
#   cudaDeviceSynchronize(); // waits for the kernel
# }

# %% [markdown]
# Below the program's own output is what the emulator counted. You need none of it yet.
#
# The programs of the exercises get their memory from `cudaMallocManaged`, which both the CPU and a kernel may use. It is
# the GPU's *global memory*. `main` fills it, launches the kernel, and compares the result with its own. If a message
# says that an element is -1 or nan, no thread has written it.
#
# ### Map
#
# The first kernel has one line of arithmetic, and one block. There is no loop: each thread does one element.

# %%
# %exercise cuda_map

# %% [markdown]
# ### Map in two dimensions
#
# Images and matrices have rows and columns, and so can a block. Memory has only one dimension: elements are stored
# one after another, row by row. The step from (row, column) to an address is in every kernel of this course.

# %%
# %exercise cuda_map_2d

# %% [markdown]
# ### More elements than a block has threads
#
# A block has at most 1024 threads, so larger data takes many blocks. With 128 threads per block, which element does
# thread 3 of block 2 take?

# %%
element = None
lessons.predict("element_of_thread", element)

# %% [markdown]
# A grid has whole blocks. 1000 elements with 128 threads per block take 8 blocks. How many threads have no element?

# %%
threads_without_element = None
lessons.predict("threads_without_element", threads_without_element)

# %% [markdown]
# Such a thread must do nothing, because the memory after the array holds other data. The comparison is called a
# *guard*. Leave it out once, and read the message.

# %%
# %exercise cuda_vector_add

# %% [markdown]
# ### Broadcast
#
# A grid can also have two dimensions. This exercise needs two indices, two guards, and an address made of row and
# column. With it you have the pattern of most kernels that do not share data.

# %%
# %exercise cuda_broadcast

# %% [markdown]
# ## 2. Shared memory, and a barrier
#
# The threads of one block run on the same *streaming multiprocessor* (SM), one of the GPU's processors, and can work
# together. Blocks cannot: they run in any order, on any SM.
#
# To work together, threads need a place. `__shared__` declares memory of the block. It is small, about 100 KB per SM,
# and fast. Global memory is large and slow. The kernels of the ladder work on *tiles*, small rectangles of a matrix,
# and every tile passes through shared memory.

# %%
lessons.drawing("memory")

# %% [markdown]
# Threads of a block do not run in step. One may be far ahead of another. Where that matters there is a *barrier*,
# `__syncthreads()`: no thread passes it before all threads of the block have arrived.

# %%
lessons.drawing("barrier")

# %% [markdown]
# This program reverses each group of 128 numbers. Each thread writes one number to shared memory and reads another,
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
# `%%cuda --check` runs the program under the *sanitizer*. It watches each access to memory, and knows who wrote each
# word and whether a barrier came in between. Take the `__syncthreads()` out and run the cell again. The numbers may
# still be right, on a GPU for years: that is the trouble with a *race*. All exercises are checked in this way.
#
# ### Neighbours
#
# The smallest use of shared memory: pass your element on to the thread beside you.

# %%
# %exercise cuda_shared_memory

# %% [markdown]
# **Five exercises: this is a good place to stop for the first time.**
#
# ### Pooling
#
# Shared memory pays when several threads read the same element. Watch *sectors read* fall. A sector is 32 bytes, the
# smallest unit that is fetched from global memory.

# %%
# %exercise cuda_pooling

# %% [markdown]
# ### A dot product
#
# Now the result is one number, to which all threads contribute. That is a *reduction*, and a loop over 256 sums would
# leave 255 threads idle. A tree does it in 8 steps, with a barrier after each.

# %%
# %exercise cuda_block_sum

# %% [markdown]
# ### Convolution in one dimension
#
# A sum of three neighbours is a convolution whose weights are all 1. At the edge of a block the neighbours belong to
# another block, so a block loads a little more than its own part: a *halo*.

# %%
# %exercise cuda_stencil

# %% [markdown]
# ### Convolution in two dimensions
#
# The same with rows and columns, and with weights. The halo goes all the way round.

# %%
# %exercise cuda_convolution_2d

# %% [markdown]
# ### Running sums
#
# Each result depends on all elements before it, which looks as if it had to be done one by one. Eight rounds suffice.
# But now threads read places that others change in the same round, so one barrier per round is not enough.

# %%
# %exercise cuda_scan

# %% [markdown]
# ## 3. Matrices
#
# ### Sum along an axis
#
# Not everything needs shared memory. Columns are independent, so one thread per column is enough. The question is
# only in which order the threads read.

# %%
# %exercise cuda_axis_sum

# %% [markdown]
# ### The product of two matrices
#
# Attention is two matrix products with a softmax between them. First the plain way: one thread, one element, one loop.

# %%
# %exercise cuda_matmul_naive

# %% [markdown]
# ### The product in tiles
#
# Each element of a factor is read many times. A block therefore loads a tile of each factor into shared memory, uses it
# 16 times, and goes on to the next pair. This loop is the heart of the ladder's first rung.

# %%
# %exercise cuda_matmul

# %% [markdown]
# ## 4. What memory costs
#
# ### Banks of shared memory
#
# The same load can take 1 or 32 passes through shared memory. Shared memory has 32 *banks*, and each serves one word
# per pass. A pass is called a *wavefront*, and each additional wavefront is a *bank conflict*. Getting rid of them is
# what lesson 03 is about.

# %%
# %exercise cuda_transpose

# %% [markdown]
# ### Sectors of global memory
#
# In global memory, the lanes of a warp should read neighbours. Here the result is right from the start. What must
# fall is the number of sectors.

# %%
# %exercise cuda_coalescing

# %% [markdown]
# ## 5. Warps, and shuffles
#
# The hardware runs threads in groups of 32, a *warp*. Its threads are called *lanes*: lane 0 to lane 31,
# `threadIdx.x % 32`. A warp executes an instruction for all of its lanes at once.

# %%
lessons.drawing("warps")

# %% [markdown]
# Lanes can read each other's registers, without any memory, by a *shuffle*:
#
# | call | what a lane gets |
# |---|---|
# | `__shfl_sync(mask, x, lane)` | the `x` of that lane |
# | `__shfl_down_sync(mask, x, step)` | the `x` of the lane `step` further on |
# | `__shfl_xor_sync(mask, x, bits)` | the `x` of the lane whose number differs in these bits |
#
# `mask` says which lanes take part, one bit per lane; `0xffffffff` is all of them. In this program each lane takes the
# number of the lane after it. The last lane has none after it, and keeps its own.

# %% language="cuda"
# #include <cstdio>
#
# __global__ void next(int *x) {
#   x[threadIdx.x] = __shfl_down_sync(0xffffffff, x[threadIdx.x], 1);
# }
#
# int main() {
#   int *x;
#   cudaMallocManaged(&x, 32 * sizeof(int));
#   for (int i = 0; i < 32; i++)
#     x[i] = i * i;
#   next<<<1, 32>>>(x);
#   cudaDeviceSynchronize();
#   std::printf("%d %d %d ... %d %d\n", x[0], x[1], x[2], x[30], x[31]);
#   cudaFree(x);
# }

# %% [markdown]
# The sum of 32 numbers, one per lane: in each step, every lane adds what one other lane has. How many steps does it take
# at least?

# %%
steps = None
lessons.predict("steps_of_a_sum", steps)

# %% [markdown]
# ### The sum, for every lane
#
# The tree of section 2 once more, in registers: no shared memory, no barrier.

# %%
# %exercise cuda_warp_sum

# %% [markdown]
# ### Softmax of a row
#
# A warp per row, a maximum, a sum: what attention does with each row of its scores. Rows are longer than a warp, so each
# lane first goes through its own elements.

# %%
# %exercise cuda_row_softmax

# %% [markdown]
# ### Atomics
#
# Sometimes many threads change the same word, and the data decides which word that is. Adding 1 takes three steps:
# read, add, write. If two threads do that at the same time, one addition can get lost.

# %%
# %exercise cuda_histogram

# %% [markdown]
# ## 6. Streams
#
# So far the CPU launched a kernel and waited. Copies and kernels can also run at the same time, if they are in
# different *streams*. This exercise is about the lines of `main`, not of a kernel. The sanitizer also checks them.

# %%
# %exercise cuda_streams

# %% [markdown]
# ## 7. Two bugs
#
# These two kernels are wrong. Start with the check, and read its message word for word. For the race it names two
# lines, for the hang it says which threads wait where.

# %%
# %exercise cuda_race

# %%
# %exercise cuda_hang

# %% [markdown]
# ## 8. Mixed precision
#
# Store in 16 bits, compute in 32: that is how attention runs on tensor cores, from lesson 02 on.

# %%
# %exercise cuda_mixed_precision

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
# `!ladder exercise list` shows what you have solved, and the exercises of the other lessons.
#
# **Next:** [00, attention, memory and the machine](00_attention.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/00a_cuda.ipynb).
