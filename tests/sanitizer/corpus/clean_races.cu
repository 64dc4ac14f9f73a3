// Barriers and places that look as if something were wrong with them, and are right.
#include "corpus.h"

#include <cstdint>
#include <cuda_fp16.h>

namespace {

__device__ uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

// --- barriers ----------------------------------------------------------------------------------------------

__global__ void early_return_before_barrier(float *out, int n) {
  __shared__ float tile[64];
  if (int(threadIdx.x) >= n)
    return; // threads that have ended are not waited for
  tile[threadIdx.x] = float(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = tile[n - 1 - threadIdx.x];
}
CASE(early_return_before_barrier) {
  Device<float> out(64);
  early_return_before_barrier<<<1, 64>>>(out, 40);
}

__global__ void barrier_in_uniform_branch(float *out, int n) {
  __shared__ float tile[64];
  tile[threadIdx.x] = 1.f;
  for (int i = 0; i < n; i++)
    if (n > 2) {
      __syncthreads();
      const float other = tile[63 - threadIdx.x];
      __syncthreads();
      tile[threadIdx.x] = other + i;
    }
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(barrier_in_uniform_branch) {
  Device<float> out(64);
  barrier_in_uniform_branch<<<1, 64>>>(out, 5);
}

__global__ void one_barrier_a_round(const float *in, float *out, int tiles) {
  __shared__ float buffers[2][64]; // two buffers in turn need one barrier, not two
  float sum = 0.f;
  for (int t = 0; t < tiles; t++) {
    buffers[t % 2][threadIdx.x] = in[t * 64 + threadIdx.x] + t;
    __syncthreads();
    sum += buffers[t % 2][63 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
}
CASE(one_barrier_a_round) {
  Device<float> in(512), out(64);
  one_barrier_a_round<<<1, 64>>>(in, out, 8);
}

__global__ void named_barriers(const float *in, float *out, int tiles) {
  __shared__ float tile[32];
  const int lane = threadIdx.x % 32;
  for (int t = 0; t < tiles; t++) {
    if (threadIdx.x < 32) {
      if (t)
        asm volatile("bar.sync 2, 64;" ::: "memory");
      tile[lane] = in[t * 32 + lane] + t;
      asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 64;" ::: "memory");
      out[t * 32 + lane] = tile[31 - lane];
      if (t + 1 < tiles)
        asm volatile("bar.arrive 2, 64;" ::: "memory");
    }
  }
}
CASE(named_barriers) {
  Device<float> in(128), out(128);
  named_barriers<<<1, 64>>>(in, out, 4);
}

__global__ void barrier_that_counts(int *out, int n) {
  const int positive = __syncthreads_count(int(threadIdx.x) < n);
  const int any = __syncthreads_or(int(threadIdx.x) == n);
  out[threadIdx.x] = positive + any;
}
CASE(barrier_that_counts) {
  Device<int> out(96);
  barrier_that_counts<<<1, 96>>>(out, 50);
}

__global__ void mbarrier_hands_over(const float *in, float *out) {
  __shared__ float tile[64];
  __shared__ __align__(8) uint64_t barrier;
  const uint32_t address = shared_address(&barrier);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(address) : "memory");
  __syncthreads();
  tile[threadIdx.x] = in[threadIdx.x] + threadIdx.x;
  uint64_t state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(address) : "memory");
  int done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(address), "l"(state)
                 : "memory");
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
CASE(mbarrier_hands_over) {
  Device<float> in(64), out(64);
  mbarrier_hands_over<<<1, 64>>>(in, out);
}

__global__ void shared_memory_in_phases(const float *in, int *out) {
  __shared__ __align__(16) char memory[256]; // floats first, then integers
  float *const floats = reinterpret_cast<float *>(memory);
  int *const integers = reinterpret_cast<int *>(memory);
  floats[threadIdx.x] = in[threadIdx.x] + threadIdx.x;
  __syncthreads();
  const int mine = int(floats[63 - threadIdx.x]);
  __syncthreads();
  integers[threadIdx.x] = mine;
  __syncthreads();
  out[threadIdx.x] = integers[(threadIdx.x + 7) % 64];
}
CASE(shared_memory_in_phases) {
  Device<float> in(64);
  Device<int> out(64);
  shared_memory_in_phases<<<1, 64>>>(in, out);
}

// --- several writers, one value ----------------------------------------------------------------------------

__global__ void all_raise_a_flag(const int *in, int *out) {
  __shared__ int found;
  if (threadIdx.x == 0)
    found = 0;
  __syncthreads();
  if (in[threadIdx.x] == 0)
    found = 1; // from many threads, but always 1
  __syncthreads();
  out[threadIdx.x] = found;
}
CASE(all_raise_a_flag) {
  Device<int> in(128), out(128);
  all_raise_a_flag<<<1, 128>>>(in, out);
}

__global__ void blocks_raise_a_flag(int *flag) {
  if (threadIdx.x < 5)
    *flag = 1; // remark(blocks_raise_a_flag): flag
}
CASE(blocks_raise_a_flag) {
  Device<int> flag(1);
  blocks_raise_a_flag<<<8, 32>>>(flag);
}

__global__ void quads_write_their_maximum(const float *in, float *out) {
  __shared__ float maxima[8];
  float m = in[threadIdx.x] + threadIdx.x / 4;
  m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 1));
  m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 2));
  maxima[threadIdx.x / 4] = m; // four lanes, one value
  __syncwarp();
  out[threadIdx.x] = maxima[threadIdx.x % 8];
}
CASE(quads_write_their_maximum) {
  Device<float> in(32), out(32);
  quads_write_their_maximum<<<1, 32>>>(in, out);
}

__global__ void everybody_reads_one_word(const float *in, float *out) {
  __shared__ float scale;
  if (threadIdx.x == 5)
    scale = in[3] + 2.f;
  __syncthreads();
  out[threadIdx.x] = scale * threadIdx.x;
}
CASE(everybody_reads_one_word) {
  Device<float> in(32), out(128);
  everybody_reads_one_word<<<1, 128>>>(in, out);
}

// --- neighbours --------------------------------------------------------------------------------------------

__global__ void neighbouring_bytes(uint8_t *out) {
  __shared__ uint8_t bytes[128];
  bytes[threadIdx.x * 4 % 128 + threadIdx.x / 32] = uint8_t(threadIdx.x);
  __syncthreads();
  out[blockIdx.x * 128 + threadIdx.x] = bytes[threadIdx.x];
}
CASE(neighbouring_bytes) {
  Device<uint8_t> out(256);
  neighbouring_bytes<<<2, 128>>>(out);
}

__global__ void neighbouring_halves(__half *out) {
  out[blockIdx.x * 33 + threadIdx.x] = __half(float(blockIdx.x)); // blocks share words and sectors
}
CASE(neighbouring_halves) {
  Device<__half> out(4 * 33);
  neighbouring_halves<<<4, 33>>>(out);
}

__global__ void padded_transpose(const float *in, float *out) {
  __shared__ float tile[32][33]; // the last column is never written, nor read
  for (int row = threadIdx.y; row < 32; row += 8)
    tile[row][threadIdx.x] = in[row * 32 + threadIdx.x];
  __syncthreads();
  for (int row = threadIdx.y; row < 32; row += 8)
    out[row * 32 + threadIdx.x] = tile[threadIdx.x][row];
}
CASE(padded_transpose) {
  Device<float> in(1024), out(1024);
  padded_transpose<<<1, dim3(32, 8)>>>(in, out);
}

__global__ void index_below_a_moved_pointer(const float *in, float *out) {
  const float *const middle = in + 32;
  out[threadIdx.x] = middle[int(threadIdx.x) - 32];
}
CASE(index_below_a_moved_pointer) {
  Device<float> in(64), out(64);
  index_below_a_moved_pointer<<<1, 64>>>(in, out);
}

__global__ void last_tile_guarded(const float *in, float *out, int n) {
  __shared__ float tile[64];
  const int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = i < n ? in[i] : 0.f;
  __syncthreads();
  if (i < n)
    out[i] = tile[threadIdx.x] + tile[63 - threadIdx.x];
}
CASE(last_tile_guarded) {
  Device<float> in(100), out(100);
  last_tile_guarded<<<2, 64>>>(in, out, 100);
}

__global__ void address_made_but_not_used(const float *in, float *out, int n) {
  const float *const beyond = in + 1000000 * int(threadIdx.x);
  out[threadIdx.x] = int(threadIdx.x) < n ? *beyond : 0.f;
}
CASE(address_made_but_not_used) {
  Device<float> in(4), out(32);
  address_made_but_not_used<<<1, 32>>>(in, out, 1);
}

__global__ void cleared_before_the_additions(const int *in, int *out) {
  __shared__ int counter;
  if (threadIdx.x == 0)
    counter = 0;
  __syncwarp();
  atomicAdd(&counter, int(threadIdx.x) + *in);
  __syncwarp();
  if (threadIdx.x == 0)
    *out = counter;
}
CASE(cleared_before_the_additions) {
  Device<int> in(1), out(1);
  cleared_before_the_additions<<<1, 32>>>(in, out);
}

__global__ void each_block_counts_its_own(int *sums) { atomicAdd_block(&sums[blockIdx.x], int(threadIdx.x)); }
CASE(each_block_counts_its_own) {
  Device<int> sums(8);
  each_block_counts_its_own<<<8, 64>>>(sums);
}

__global__ void in_place(float *values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    values[i] = values[i] * 2.f + 1.f;
}
CASE(in_place) {
  Device<float> values(200);
  in_place<<<4, 64>>>(values, 200);
}

__global__ void shift_in_place(float *values) {
  const float next = values[(threadIdx.x + 1) % 128];
  __syncthreads();
  values[threadIdx.x] = next + 1.f;
}
CASE(shift_in_place) {
  Device<float> values(128);
  shift_in_place<<<1, 128>>>(values);
}

__global__ void scratch_of_ones_own(float *scratch, float *out) {
  float *const own = scratch + blockIdx.x * 64;
  own[threadIdx.x] = float(threadIdx.x + blockIdx.x);
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = own[63 - threadIdx.x];
}
CASE(scratch_of_ones_own) {
  Device<float> scratch(256), out(256);
  scratch_of_ones_own<<<4, 64>>>(scratch, out);
}

} // namespace
