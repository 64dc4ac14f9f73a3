// Correct programs as textbooks, courses and samples write them. None of them may be reported.
#include "corpus.h"

#include <cuda/atomic>
#include <cuda_fp16.h>
#include <mma.h>

namespace {

// --- zeros everywhere, the first data that everybody tries -------------------------------------------------

__global__ void tiled_product(const float *a, const float *b, float *c, int n) {
  __shared__ float a_smem[16][16], b_smem[16][16];
  const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n / 16; ++t) {
    a_smem[threadIdx.y][threadIdx.x] = a[row * n + t * 16 + threadIdx.x];
    b_smem[threadIdx.y][threadIdx.x] = b[(t * 16 + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < 16; ++k)
      sum += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
CASE(product_of_zeros) {
  Device<float> a(48 * 48), b(48 * 48), c(48 * 48);
  tiled_product<<<dim3(3, 3), dim3(16, 16)>>>(a, b, c, 48);
}

__global__ void reduce_tree(const int *in, int *out) {
  __shared__ int partial[256];
  partial[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  for (int n = 128; n > 0; n /= 2) {
    if (int(threadIdx.x) < n)
      partial[threadIdx.x] += partial[threadIdx.x + n];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    out[blockIdx.x] = partial[0];
}
CASE(reduction_of_zeros) {
  Device<int> in(1024), out(4);
  reduce_tree<<<4, 256>>>(in, out);
}

__global__ void found_one(const int *in, int *found, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && in[i] == 0)
    *found = 1; // remark(many_raise_one_flag): flag, all of them
}
CASE(many_raise_one_flag) {
  Device<int> in(1000), found(1);
  found_one<<<8, 128>>>(in, found, 1000);
}

__global__ void shared_flag(const int *in, int *out) {
  __shared__ bool any;
  if (threadIdx.x == 0)
    any = false;
  __syncthreads();
  if (in[threadIdx.x] > 100)
    any = true; // by several
  __syncthreads();
  out[threadIdx.x] = any;
}
CASE(several_raise_a_shared_flag) {
  Device<int> in(128), out(128);
  cudaMemset(in.data, 1, in.bytes);
  shared_flag<<<1, 128>>>(in, out);
}

// --- stencils, scans, transposes, histograms ---------------------------------------------------------------

__global__ void stencil(const float *in, float *out, int n) {
  __shared__ float tile[128 + 2];
  const int i = blockIdx.x * 128 + threadIdx.x, t = threadIdx.x + 1;
  tile[t] = i < n ? in[i] : 0.f;
  if (threadIdx.x == 0)
    tile[0] = i > 0 ? in[i - 1] : 0.f;
  if (threadIdx.x == 127)
    tile[129] = i + 1 < n ? in[i + 1] : 0.f;
  __syncthreads();
  if (i < n)
    out[i] = (tile[t - 1] + tile[t] + tile[t + 1]) / 3;
}
CASE(stencil_with_halo) {
  Device<float> in(500), out(500);
  stencil<<<4, 128>>>(in, out, 500);
}

__global__ void scan_hillis(const int *in, int *out) {
  __shared__ int buffer[2][256];
  int now = 0;
  buffer[0][threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    const int other = int(threadIdx.x) >= step ? buffer[now][threadIdx.x - step] : 0;
    buffer[1 - now][threadIdx.x] = buffer[now][threadIdx.x] + other;
    now = 1 - now;
    __syncthreads();
  }
  out[threadIdx.x] = buffer[now][threadIdx.x];
}
CASE(scan_with_two_buffers) {
  Device<int> in(256), out(256);
  scan_hillis<<<1, 256>>>(in, out);
}

__global__ void scan_by_shuffles(const int *in, int *out) {
  __shared__ int sums[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int value = in[threadIdx.x];
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffff, value, step);
    if (lane >= step)
      value += other;
  }
  if (lane == 31)
    sums[warp] = value;
  __syncthreads();
  if (warp == 0) {
    int sum = lane < 8 ? sums[lane] : 0;
    for (int step = 1; step < 8; step *= 2) {
      const int other = __shfl_up_sync(0xffffffff, sum, step);
      if (lane >= step)
        sum += other;
    }
    if (lane < 8)
      sums[lane] = sum;
  }
  __syncthreads();
  out[threadIdx.x] = value + (warp > 0 ? sums[warp - 1] : 0);
}
CASE(scan_by_shuffles) {
  Device<int> in(256), out(256);
  scan_by_shuffles<<<1, 256>>>(in, out);
}

__global__ void transpose(const float *in, float *out, int n) {
  __shared__ float tile[32][33];
  for (int j = 0; j < 32; j += 8)
    tile[threadIdx.y + j][threadIdx.x] =
        in[(blockIdx.y * 32 + threadIdx.y + j) * n + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  for (int j = 0; j < 32; j += 8)
    out[(blockIdx.x * 32 + threadIdx.y + j) * n + blockIdx.y * 32 + threadIdx.x] =
        tile[threadIdx.x][threadIdx.y + j];
}
CASE(transpose_of_zeros) {
  Device<float> in(64 * 64), out(64 * 64);
  transpose<<<dim3(2, 2), dim3(32, 8)>>>(in, out, 64);
}

__global__ void private_histograms(const unsigned char *in, unsigned *out, int n) {
  __shared__ unsigned bins[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    bins[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(&bins[in[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (bins[i])
      atomicAdd(&out[i], bins[i]);
}
CASE(private_histograms) {
  Device<unsigned char> in(5000);
  Device<unsigned> out(256);
  private_histograms<<<4, 128>>>(in, out, 5000);
}

// --- structs, padding, vectors -----------------------------------------------------------------------------

struct Padded {
  double weight;
  char kind;
  int index;
  short level;
};
__global__ void copy_structs(const Padded *in, Padded *out) {
  __shared__ Padded tile[64];
  Padded mine;
  mine.weight = in[threadIdx.x].weight;
  mine.kind = 'a';
  mine.index = int(threadIdx.x);
  mine.level = 3;
  tile[threadIdx.x] = mine;
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
CASE(structs_with_holes) {
  Device<Padded> in(64), out(64);
  copy_structs<<<1, 64>>>(in, out);
}

struct __align__(16) Vertex {
  float x, y, z;
};
__global__ void move_vertices(const Vertex *in, Vertex *out, int n) {
  extern __shared__ Vertex vertices[];
  const int i = threadIdx.x;
  if (i < n)
    vertices[i] = in[i];
  __syncthreads();
  if (i < n) {
    Vertex v = vertices[n - 1 - i];
    v.x += 1;
    out[i] = v;
  }
}
CASE(vertices_with_padding) {
  Device<Vertex> in(50), out(50);
  move_vertices<<<1, 64, 50 * sizeof(Vertex)>>>(in, out, 50);
}

/// Loads that the compiler widens, at the very end of shared memory.
__global__ void last_three(const float *in, float *out, int n) {
  extern __shared__ float row[];
  for (int i = threadIdx.x; i < n; i += 32)
    row[i] = in[i];
  __syncwarp();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 3; ++i)
    sum += row[i + (n - 3)];
  const int base = (threadIdx.x & 3) * 4;
  out[threadIdx.x] = sum + row[base] * row[base + 1] + row[base + 2];
}
CASE(widened_loads) {
  Device<float> in(15), out(32);
  last_three<<<1, 32, 15 * sizeof(float)>>>(in, out, 15);
}

__global__ void seven(float *out) {
  __shared__ float s[7];
  if (threadIdx.x < 7)
    s[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 7; ++i)
    sum += s[i];
  out[threadIdx.x] = sum;
}
CASE(seven_of_eight) {
  Device<float> out(32);
  seven<<<1, 32>>>(out);
}

__global__ void bytes_of_words(const unsigned char *in, unsigned char *out, int n) {
  __shared__ unsigned char line[70];
  for (int i = threadIdx.x; i < n; i += 32)
    line[i] = in[i];
  __syncwarp();
  for (int i = threadIdx.x; i < n; i += 32)
    out[i] = line[n - 1 - i] ^ 0x55;
}
CASE(bytes_of_words) {
  Device<unsigned char> in(70), out(70);
  bytes_of_words<<<1, 32>>>(in, out, 70);
}

// --- flags, locks, tickets, with their fences --------------------------------------------------------------

__device__ int handed_over[64], hand_flag;
__global__ void flag_by_volatile(int *out) {
  volatile int *const flag = &hand_flag;
  if (blockIdx.x == 0) {
    handed_over[threadIdx.x] = int(threadIdx.x) + 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
      *flag = 1;
  } else {
    if (threadIdx.x == 0) {
      while (*flag == 0) {
      }
      __threadfence();
    }
    __syncthreads();
    out[threadIdx.x] = handed_over[63 - threadIdx.x];
  }
}
CASE(flag_by_volatile) {
  Device<int> out(64);
  flag_by_volatile<<<2, 64>>>(out);
}

__device__ int letter;
__global__ void atomic_ref_flag(int *flag, int *out) {
  cuda::atomic_ref<int, cuda::thread_scope_device> ref(*flag);
  if (blockIdx.x == 0) {
    letter = 17;
    ref.store(1, cuda::memory_order_release);
  } else {
    while (ref.load(cuda::memory_order_acquire) == 0) {
    }
    *out = letter;
  }
}
CASE(acquire_and_release) {
  Device<int> flag(1), out(1);
  atomic_ref_flag<<<2, 1>>>(flag, out);
}

__device__ int mutex_word;
__device__ double account;
__global__ void deposit() {
  if (threadIdx.x == 0) {
    while (atomicCAS(&mutex_word, 0, 1) != 0) {
    }
    __threadfence();
    account += 1.5;
    __threadfence();
    atomicExch(&mutex_word, 0);
  }
}
CASE(lock_with_fences) { deposit<<<16, 32>>>(); }

__global__ void sum_of_sums(const int *in, volatile int *partial, unsigned *count, int *out) {
  __shared__ int s[128];
  __shared__ bool is_last;
  s[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
  __syncthreads();
  for (int n = 64; n > 0; n /= 2) {
    if (int(threadIdx.x) < n)
      s[threadIdx.x] += s[threadIdx.x + n];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = s[0];
    __threadfence();
    is_last = atomicInc(count, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i)
      sum += partial[i];
    *out = sum;
    *count = 0;
  }
}
CASE(last_block_as_in_the_guide) {
  Device<int> in(8 * 128), partial(8), out(1);
  Device<unsigned> count(1);
  sum_of_sums<<<8, 128>>>(in, partial, count, out);
}

// --- tensor cores by wmma ----------------------------------------------------------------------------------

__global__ void wmma_product(const half *a, const half *b, float *c) {
  using namespace nvcuda;
  __shared__ __align__(32) half a_smem[16 * 16], b_smem[16 * 16];
  for (int i = threadIdx.x; i < 256; i += 32) {
    a_smem[i] = a[i];
    b_smem[i] = b[i];
  }
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.f);
  wmma::load_matrix_sync(fa, a_smem, 16);
  wmma::load_matrix_sync(fb, b_smem, 16);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
CASE(wmma_product) {
  Device<half> a(256), b(256);
  Device<float> c(256);
  wmma_product<<<1, 32>>>(a, b, c);
}

// --- masks -------------------------------------------------------------------------------------------------

__global__ void half_warps(const int *in, int *out) {
  const unsigned mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  int sum = in[threadIdx.x];
  for (int step = 8; step > 0; step /= 2)
    sum += __shfl_xor_sync(mask, sum, step, 16);
  out[threadIdx.x] = sum;
}
CASE(half_warps) {
  Device<int> in(64), out(64);
  half_warps<<<1, 64>>>(in, out);
}

__global__ void last_lanes_get_what_nobody_uses(const int *in, int *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int sum = i < n ? in[i] : 0;
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0)
    atomicAdd(out, sum);
}
CASE(warp_sums_by_down) {
  Device<int> in(1000), out(1);
  last_lanes_get_what_nobody_uses<<<8, 128>>>(in, out, 1000);
}

__global__ void first_warp_sums(const int *in, int *out) {
  __shared__ int sums[4];
  int sum = in[threadIdx.x];
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0)
    sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 4) {
    sum = sums[threadIdx.x];
    for (int step = 2; step > 0; step /= 2)
      sum += __shfl_down_sync(0xf, sum, step);
    if (threadIdx.x == 0)
      *out = sum;
  }
}
CASE(four_lanes_sum) {
  Device<int> in(128), out(1);
  first_warp_sums<<<1, 128>>>(in, out);
}

__global__ void aggregated(const int *in, int *count) {
  if (in[threadIdx.x] == 0) {
    const unsigned active = __activemask();
    const int leader = __ffs(active) - 1;
    int base = 0;
    if (int(threadIdx.x % 32) == leader)
      base = atomicAdd(count, __popc(active));
    base = __shfl_sync(active, base, leader);
    (void)base;
  }
}
CASE(warp_aggregated_atomics) {
  Device<int> in(128), count(1);
  aggregated<<<1, 128>>>(in, count);
}

} // namespace
