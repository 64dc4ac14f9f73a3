// Planted faults of order. The line that must be named has a comment: fault, the case in brackets, a colon,
// the kind.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "corpus.h"

#include <cstdint>
#include <cuda_fp16.h>

namespace {

__device__ uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ uint32_t ldmatrix_x1(uint32_t address) {
  uint32_t fragment;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(fragment) : "r"(address));
  return fragment;
}

// --- races between warps -----------------------------------------------------------------------------------

__global__ void no_barrier_after_fill(float *out) {
  __shared__ float tile[128];
  tile[threadIdx.x] = float(threadIdx.x);
  out[threadIdx.x] = tile[127 - threadIdx.x]; // fault(no_barrier_after_fill): race between warps
}
CASE(no_barrier_after_fill) {
  Device<float> out(128);
  no_barrier_after_fill<<<1, 128>>>(out);
}

__global__ void tile_refilled_early(const float *in, float *out, int tiles) {
  __shared__ float tile[128];
  float sum = 0.f;
  for (int t = 0; t < tiles; t++) {
    tile[threadIdx.x] = in[t * 128 + threadIdx.x] + 1.f + t; // fault(tile_refilled_early): race between warps
    __syncthreads();
    for (int i = 0; i < 128; i++)
      sum += tile[i];
  }
  out[threadIdx.x] = sum;
}
CASE(tile_refilled_early) {
  Device<float> in(512), out(128);
  tile_refilled_early<<<1, 128>>>(in, out, 4);
}

__global__ void reduction_without_barrier(const float *in, float *out) {
  __shared__ float sums[256];
  sums[threadIdx.x] = in[threadIdx.x] + 1.f;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2)
    if (threadIdx.x < half)
      sums[threadIdx.x] += sums[threadIdx.x + half]; // fault(reduction_without_barrier): race between warps
  if (threadIdx.x == 0)
    *out = sums[0];
}
CASE(reduction_without_barrier) {
  Device<float> in(256), out(1);
  reduction_without_barrier<<<1, 256>>>(in, out);
}

__global__ void warps_write_one_word(float *out) {
  __shared__ float winner;
  if (threadIdx.x % 32 == 0)
    winner = float(threadIdx.x); // fault(warps_write_one_word): race between warps
  __syncthreads();
  out[threadIdx.x] = winner;
}
CASE(warps_write_one_word) {
  Device<float> out(128);
  warps_write_one_word<<<1, 128>>>(out);
}

__global__ void histogram_without_atomics(const int *in, int *out) {
  __shared__ int bins[8];
  if (threadIdx.x < 8)
    bins[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    bins[in[threadIdx.x] % 8]++; // fault(histogram_without_atomics): race between warps
  __syncthreads();
  if (threadIdx.x < 8)
    out[threadIdx.x] = bins[threadIdx.x];
}
CASE(histogram_without_atomics) {
  Device<int> in(256), out(8);
  histogram_without_atomics<<<1, 256>>>(in, out);
}

__global__ void counter_read_too_early(int *out) {
  __shared__ int counter;
  if (threadIdx.x == 0)
    counter = 0;
  __syncthreads();
  atomicAdd(&counter, 1);
  out[threadIdx.x] = counter; // fault(counter_read_too_early): race between warps
}
CASE(counter_read_too_early) {
  Device<int> out(128);
  counter_read_too_early<<<1, 128>>>(out);
}

__global__ void named_barrier_for_too_few(float *out) {
  __shared__ float tile[96];
  tile[threadIdx.x] = float(threadIdx.x);
  if (threadIdx.x < 64)
    asm volatile("bar.sync 1, 64;" ::: "memory");
  out[threadIdx.x] = tile[95 - threadIdx.x]; // fault(named_barrier_for_too_few): race between warps
}
CASE(named_barrier_for_too_few) {
  Device<float> out(96);
  named_barrier_for_too_few<<<1, 96>>>(out);
}

__global__ void scratch_in_global_memory(float *scratch, float *out) {
  scratch[threadIdx.x] = float(threadIdx.x) + 1.f;
  out[threadIdx.x] = scratch[(threadIdx.x + 64) % 128]; // fault(scratch_in_global_memory): race between warps
}
CASE(scratch_in_global_memory) {
  Device<float> scratch(128), out(128);
  scratch_in_global_memory<<<1, 128>>>(scratch, out);
}

__global__ void flag_without_fence(int *out, int n) {
  __shared__ int data;
  __shared__ int flag;
  if (threadIdx.x == 0)
    flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    data = n;
    atomicExch(&flag, 1);
  } else if (threadIdx.x == 32) {
    while (atomicAdd(&flag, 0) == 0)
      ;
    *out = data; // fault(flag_without_fence): race between warps
  }
}
CASE(flag_without_fence) {
  Device<int> out(1);
  flag_without_fence<<<1, 64>>>(out, 42);
}

__global__ void mbarrier_used_too_early(int *out) {
  __shared__ __align__(8) uint64_t barrier;
  const uint32_t address = shared_address(&barrier);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(address) : "memory");
  uint64_t state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(address) : "memory"); // fault(mbarrier_used_too_early): race in a warp
  out[threadIdx.x] = int(state != 0);
}
CASE(mbarrier_used_too_early) {
  Device<int> out(64);
  mbarrier_used_too_early<<<1, 64>>>(out);
}

// --- races in a warp ---------------------------------------------------------------------------------------

__global__ void no_syncwarp(float *out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = float(threadIdx.x);
  out[threadIdx.x] = tile[31 - threadIdx.x]; // fault(no_syncwarp): race in a warp
}
CASE(no_syncwarp) {
  Device<float> out(32);
  no_syncwarp<<<1, 32>>>(out);
}

__global__ void volatile_is_no_syncwarp(float *out) {
  __shared__ float values[64];
  volatile float *sums = values;
  sums[threadIdx.x] = float(threadIdx.x) + 1.f;
  sums[threadIdx.x + 32] = float(threadIdx.x) + 2.f;
  for (int half = 32; half > 0; half /= 2)
    sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + half]; // fault(volatile_is_no_syncwarp): race in a warp
  if (threadIdx.x == 0)
    *out = sums[0];
}
CASE(volatile_is_no_syncwarp) {
  Device<float> out(1);
  volatile_is_no_syncwarp<<<1, 32>>>(out);
}

__global__ void shuffle_is_no_barrier(float *out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = float(threadIdx.x);
  const float other = __shfl_xor_sync(0xffffffff, float(threadIdx.x), 1);
  out[threadIdx.x] = other + tile[threadIdx.x ^ 1]; // fault(shuffle_is_no_barrier): race in a warp
}
CASE(shuffle_is_no_barrier) {
  Device<float> out(32);
  shuffle_is_no_barrier<<<1, 32>>>(out);
}

__global__ void lanes_write_one_word(int *out) {
  __shared__ int last;
  last = threadIdx.x; // fault(lanes_write_one_word): race in a warp
  __syncthreads();
  out[threadIdx.x] = last;
}
CASE(lanes_write_one_word) {
  Device<int> out(32);
  lanes_write_one_word<<<1, 32>>>(out);
}

__global__ void leader_writes_too_late(int *out) {
  __shared__ int base;
  if (threadIdx.x == 0)
    base = 7;
  __syncwarp();
  const int mine = base;
  if (threadIdx.x == 0)
    base = mine + 32; // fault(leader_writes_too_late): race in a warp
  __syncwarp();
  out[threadIdx.x] = mine + base;
}
CASE(leader_writes_too_late) {
  Device<int> out(32);
  leader_writes_too_late<<<1, 32>>>(out);
}

__global__ void ldmatrix_without_syncwarp(uint32_t *out) {
  __shared__ __align__(16) __half tile[64];
  tile[2 * threadIdx.x] = __half(float(threadIdx.x));
  tile[2 * threadIdx.x + 1] = __half(1.f);
  out[threadIdx.x] = ldmatrix_x1(shared_address(tile + threadIdx.x % 8 * 8)); // fault(ldmatrix_without_syncwarp): race in a warp
}
CASE(ldmatrix_without_syncwarp) {
  Device<uint32_t> out(32);
  ldmatrix_without_syncwarp<<<1, 32>>>(out);
}

__global__ void half_mask_in_syncwarp(float *out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = float(threadIdx.x);
  __syncwarp(threadIdx.x < 16 ? 0x0000ffff : 0xffff0000);
  out[threadIdx.x] = tile[31 - threadIdx.x]; // fault(half_mask_in_syncwarp): race in a warp
}
CASE(half_mask_in_syncwarp) {
  Device<float> out(32);
  half_mask_in_syncwarp<<<1, 32>>>(out);
}

// --- races between blocks ----------------------------------------------------------------------------------

__global__ void blocks_write_one_word(int *out) {
  if (threadIdx.x == 0)
    *out = blockIdx.x + 1; // fault(blocks_write_one_word): race between blocks
}
CASE(blocks_write_one_word) {
  Device<int> out(1);
  blocks_write_one_word<<<4, 32>>>(out);
}

__global__ void stencil_in_place(float *field, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 1 < n)
    field[i] = 0.5f * field[i + 1] + 1.f; // fault(stencil_in_place): race between blocks
}
CASE(stencil_in_place) {
  Device<float> field(256);
  stencil_in_place<<<4, 64>>>(field, 256);
}

__global__ void sum_without_atomics(float *sum) {
  __shared__ float part;
  if (threadIdx.x == 0) {
    part = float(blockIdx.x) + 1.f;
    *sum += part; // fault(sum_without_atomics): race between blocks
  }
}
CASE(sum_without_atomics) {
  Device<float> sum(1);
  sum_without_atomics<<<8, 32>>>(sum);
}

__global__ void ticket_without_fence(float *parts, int *ticket, float *sum) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = float(blockIdx.x) + 1.f;
    is_last = atomicAdd(ticket, 1) == int(gridDim.x) - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x < gridDim.x)
    atomicAdd(sum, parts[threadIdx.x]); // fault(ticket_without_fence): race between blocks
}
CASE(ticket_without_fence) {
  Device<float> parts(8), sum(1);
  Device<int> ticket(1);
  ticket_without_fence<<<8, 32>>>(parts, ticket, sum);
}

__global__ void cleared_among_the_additions(const int *in, int *out) {
  __shared__ int counter;
  if (threadIdx.x == 0)
    counter = 0; // fault(cleared_among_the_additions): race in a warp
  atomicAdd(&counter, int(threadIdx.x) + *in);
  __syncwarp();
  if (threadIdx.x == 0)
    *out = counter;
}
CASE(cleared_among_the_additions) {
  Device<int> in(1), out(1);
  cleared_among_the_additions<<<1, 32>>>(in, out);
}

__global__ void counted_within_blocks(int *sum) {
  if (threadIdx.x == 0)
    atomicAdd_block(sum, int(blockIdx.x) + 1); // fault(counted_within_blocks): race between blocks
}
CASE(counted_within_blocks) {
  Device<int> sum(1);
  counted_within_blocks<<<8, 32>>>(sum);
}

__global__ void rows_overlap(float *out, int row) {
  out[blockIdx.x * (row - 1) + threadIdx.x] = float(blockIdx.x) + 1.f; // fault(rows_overlap): race between blocks
}
CASE(rows_overlap) {
  Device<float> out(256);
  rows_overlap<<<4, 64>>>(out, 64);
}

} // namespace
