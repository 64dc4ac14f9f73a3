# %% [markdown]
# # 02 v2_warp_mma: tensor cores
#
# The loops stay the same, but a **warp** replaces the thread: its 32 lanes share 16 query rows, from the first key to
# the last. **Tensor cores**, the units that multiply small matrices, compute both products.

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
from ladder.show.plots import access_picture

# %% [markdown]
# A block has four warps and 64 query rows, of which each warp owns 16. Warps share the tiles of K and V in shared
# memory. Q, S, P and O of a warp are in its registers.
#
# ## Tensor cores, and their fragments
#
# One `mma` instruction multiplies a 16x16 tile A by a 16x8 tile B and adds the product to a 16x8 tile of sums. The
# operands are spread over the registers of the 32 lanes, in *fragments*. `ldmatrix` loads them from shared memory.
# Lanes 0 to 7 give the addresses of the eight rows (16 bytes each) of the first 8x8 tile, lanes 8 to 15 the addresses
# of the second tile, and so on. Each lane *receives* what its fragment needs. Which lane receives which element?
#
# The emulator shows it: the tile holds its own element numbers, and each lane reports what it received. For A the
# second 8x8 tile is the one below the first. For B it is the one beside the first: rows of K are keys, and the two
# halves of a row belong to one fragment. The picture has two fragments of B, for twice 8 keys. So the lanes give
# different addresses for A and for B.

# %%
gallery.fragments()

# %% [markdown]
# A row of K is a column of $K^T$: K needs no transposing. V does, and `.trans` does it on the way.
#
# ## Marks in the kernel
#
# | mark | what it is |
# |---|---|
# | `k_rmem` | registers: what a lane holds of K |
# | `ldmatrix_x4`, `mma_m16n8k16` | one PTX instruction each. C++ has no operator for them, so a small function wraps each as `asm volatile("...")`, *inline PTX* (`stages/include/ladder/ptx.h`) |
# | `__shfl_xor_sync(mask, x, 2)` | the `x` of the lane whose number differs in bit 1 |
# | `pack<T>(a, b)` | two floats, rounded to 16 bits, in one register |
# | `exp2_approx(x)` | $2^x$ in one instruction, `ex2.approx`. $e^x = 2^{x \log_2 e}$, and the factor is in the scale |
# | `row`, `col` | the place of this lane's first element in a 16x8 tile of sums |
#
# These lines are the product $S = QK^T$:

# %%
lessons.source("v2", "for (int n = 0; n < kBc; n += 16)", "mma_m16n8k16<T>(part[1]")

# %% [markdown]
# Which addresses do the lanes give for K? Here is a place to try it:

# %%
# %exercise v2_ldmatrix_k

# %% [markdown]
# Softmax also works on fragments. Four lanes share a row of S, and each has parts of two rows. A row's maximum takes
# two shuffles. The new $m$ and $l$, and the rescaling of $O$:

# %%
lessons.source("v2", "float m_new = m[half], l_tile = 0.f;", "o[i / 2][2 * half + i % 2] *= rescale;")

# %% [markdown]
# A lane holds the same places of an accumulator as of an operand A. So S, rounded to 16 bits, is operand A of the
# second product, and never leaves its registers:

# %%
lessons.source("v2", "const float (&left)[4] = s_rmem[k / 8]", "mma_m16n8k16<T>(o_rmem[n / 8 + 1]")

# %% [markdown]
# ## WMMA, and sums in fp16
#
# CUDA C++ has a second way to the tensor cores, without PTX: `nvcuda::wmma`. Its fragments are opaque. They are
# loaded, multiplied and stored as a whole, and no program may rely on which lane holds which element. So S cannot
# become the operand A of the next product in registers: it has to go through shared memory. That is why v2 uses
# `mma.sync`.
#
# Both ways can also add up in fp16. This kernel is one product of 16 x 16, 1024 deep, with WMMA, once with each kind
# of sum:

# %% language="cuda"
# #include <cmath>
# #include <cstdio>
# #include <cuda_fp16.h>
# #include <mma.h>
# #include <random>
# #include <vector>
#
# constexpr int kDepth = 1024;
#
# // C = A B^T for 16 x kDepth A and 16 x kDepth B. The sums are Sum: float or __half.
# template <typename Sum> __global__ void product(const __half *a, const __half *b, float *c) {
#   using namespace nvcuda;
#   wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_rmem;
#   wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b_rmem;
#   wmma::fragment<wmma::accumulator, 16, 16, 16, Sum> c_rmem;
#   __shared__ Sum c_smem[16 * 16];
#   wmma::fill_fragment(c_rmem, Sum(0.f));
#   for (int k = 0; k < kDepth; k += 16) {
#     wmma::load_matrix_sync(a_rmem, a + k, kDepth);
#     wmma::load_matrix_sync(b_rmem, b + k, kDepth);
#     wmma::mma_sync(c_rmem, a_rmem, b_rmem, c_rmem);
#   }
#   wmma::store_matrix_sync(c_smem, c_rmem, 16, wmma::mem_row_major);
#   __syncwarp();
#   for (int i = threadIdx.x; i < 256; i += 32)
#     c[i] = float(c_smem[i]);
# }
#
# int main() {
#   std::mt19937 random(0);
#   std::normal_distribution<float> normal;
#   std::vector<__half> a(16 * kDepth), b(16 * kDepth);
#   for (auto *x : {&a, &b})
#     for (auto &one : *x)
#       one = __float2half(normal(random));
#   __half *a_gmem, *b_gmem;
#   float *c_gmem, c[256];
#   cudaMalloc(&a_gmem, a.size() * 2);
#   cudaMalloc(&b_gmem, b.size() * 2);
#   cudaMalloc(&c_gmem, sizeof c);
#   cudaMemcpy(a_gmem, a.data(), a.size() * 2, cudaMemcpyDefault);
#   cudaMemcpy(b_gmem, b.data(), b.size() * 2, cudaMemcpyDefault);
#   const auto report = [&](const char *sums, auto kernel) {
#     kernel<<<1, 32>>>(a_gmem, b_gmem, c_gmem);
#     cudaMemcpy(c, c_gmem, sizeof c, cudaMemcpyDefault);
#     double worst = 0;
#     for (int row = 0; row < 16; ++row)
#       for (int col = 0; col < 16; ++col) {
#         double exact = 0;
#         for (int k = 0; k < kDepth; ++k)
#           exact += double(__half2float(a[row * kDepth + k])) * __half2float(b[col * kDepth + k]);
#         worst = std::max(worst, std::abs(c[row * 16 + col] - exact));
#       }
#     std::printf("sums in %s: largest error %.1e\n", sums, worst);
#   };
#   report("fp32", product<float>);
#   report("fp16", product<__half>);
# }

# %% [markdown]
# The counts are the same, except for the stores of C, which has half the bytes. The errors differ: fp16 has 11 bits,
# and 1024 products of standard normal numbers add up to about 32, where neighbouring fp16 numbers are 1/32 apart.
# Each rounding costs up to half of that, and there are 64. So every rung adds up in fp32. GPUs for games have a
# reason for fp16 sums: some of them execute these twice as fast. An H200 does not.
#
# ## Predict
#
# At $d = 64$ in fp16 a row of K is 128 bytes, and the tile is row-major. An `ldmatrix.x4` is served in four passes,
# one for each 8x8 tile: eight rows, 16 bytes from each. How many bank conflicts does one `ldmatrix` of K cause?

# %%
conflicts_of_ldmatrix = None
lessons.predict("ldmatrix_of_k", conflicts_of_ldmatrix)

# %%
of_k = questions.load_of_k()
lessons.after("ldmatrix_of_k", lambda: access_picture(of_k.service, of_k.title))

# %% [markdown]
# ## Measured

# %%
rungs = ["v1b", "v2"]
lessons.counts(ladder.compare(ladder.Problem(1, 2, 256, 256, 64), rungs, backend="emulator"))

# %%
gallery.costs(["v2"])

# %% [markdown]
# One `ldmatrix` feeds thousands of multiply-adds, where v1b loads two words for each one. This is the whole reason
# why the number of wavefronts falls so far. (The number of sectors falls by a factor of 2 because of fp16, and
# further because loads and stores are wide.) But six of seven wavefronts that are left are conflicts, all of them in
# the loads of K and V. Rows that are a multiple of 128 bytes apart start in the same bank, and `ldmatrix` reads eight
# such rows per pass. Stores along a row have no conflict.
#
# There is one cause: **the elements of a column of a tile are in the same bank.**

# %%
lessons.times(rungs)

# %% [markdown]
# **The bottleneck that the next rung removes:** bank conflicts, without a byte of padding.
#
# **Practise:** the exercises of this rung begin with `v2_`. **Read on:** the rung's
# [README](../stages/v2_warp_mma/README.md). **Next:** [03, the swizzle](03_v3_swizzle.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/02_v2_warp_mma.ipynb).
