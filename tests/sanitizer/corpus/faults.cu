// Planted faults. The line that must be named has a comment: fault, the case in brackets, a colon, the kind.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "corpus.h"

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

namespace {

__device__ uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

// --- out of bounds, misaligned -----------------------------------------------------------------------------

__global__ void read_past_end(const float *in, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n)
    out[i % n] = in[i]; // fault(read_past_end): out of bounds
}
CASE(read_past_end) {
  Device<float> in(100), out(100);
  read_past_end<<<1, 128>>>(in, out, 100);
}

__global__ void before_shared_memory(int *out) {
  __shared__ int row[32];
  row[threadIdx.x] = int(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = row[int(threadIdx.x) - 1]; // fault(before_shared_memory): out of bounds
}
CASE(before_shared_memory) {
  Device<int> out(32);
  before_shared_memory<<<1, 32>>>(out);
}

__global__ void write_past_end(float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n)
    out[i] = float(i); // fault(write_past_end): out of bounds
}
CASE(write_past_end) {
  Device<float> out(256);
  write_past_end<<<3, 128>>>(out, 256);
}

__global__ void index_before_begin(const float *in, float *out, int n) {
  const int i = threadIdx.x;
  if (i < n)
    out[i] = in[i] - in[i - 1]; // fault(index_before_begin): out of bounds
}
CASE(index_before_begin) {
  Device<float> in(64), out(64);
  index_before_begin<<<1, 64>>>(in, out, 64);
}

__global__ void offset_overflows(const float *in, float *out, int stride) {
  const int offset = int(blockIdx.x) * stride; // 50000 * 50000 is no int
  out[blockIdx.x] = in[offset]; // fault(offset_overflows): out of bounds
}
CASE(offset_overflows) {
  Device<float> in(64), out(64);
  offset_overflows<<<2, 1>>>(in, out, int(0x80000001u));
}

__global__ void null_pointer(float *out) {
  out[threadIdx.x] = 1.f; // fault(null_pointer): out of bounds
}
CASE(null_pointer) { null_pointer<<<1, 32>>>(nullptr); }

__global__ void shared_past_end(float *out) {
  __shared__ float tile[64];
  tile[threadIdx.x + 1] = float(threadIdx.x); // fault(shared_past_end): out of bounds
  __syncthreads();
  out[threadIdx.x] = threadIdx.x ? tile[threadIdx.x] : 0.f;
}
CASE(shared_past_end) {
  Device<float> out(64);
  shared_past_end<<<1, 64>>>(out);
}

__global__ void dynamic_too_small(float *out) {
  extern __shared__ float dynamic[];
  dynamic[threadIdx.x] = float(threadIdx.x); // fault(dynamic_too_small): out of bounds
  __syncthreads();
  out[threadIdx.x] = dynamic[threadIdx.x];
}
CASE(dynamic_too_small) {
  Device<float> out(64);
  dynamic_too_small<<<1, 64, 32 * sizeof(float)>>>(out);
}

__global__ void local_past_end(float *out, int n) {
  float history[8];
  for (int i = 0; i < n; i++)
    history[(i * 5) % n] = float(i); // fault(local_past_end): out of bounds
  out[threadIdx.x] = history[n % 7];
}
CASE(local_past_end) {
  Device<float> out(32);
  local_past_end<<<1, 32>>>(out, 100);
}

__global__ void misaligned_vector(const float *in, float *out) {
  const float4 v = *reinterpret_cast<const float4 *>(in + 1 + 4 * threadIdx.x); // fault(misaligned_vector): misaligned
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
CASE(misaligned_vector) {
  Device<float> in(256), out(32);
  misaligned_vector<<<1, 32>>>(in, out);
}

__global__ void misaligned_shared(float *out, int shift) {
  __shared__ __align__(16) float tile[128];
  tile[threadIdx.x] = tile[threadIdx.x + 64] = 1.f;
  __syncthreads();
  const float2 pair = reinterpret_cast<float2 *>(tile + shift)[threadIdx.x / 2]; // fault(misaligned_shared): misaligned
  out[threadIdx.x] = pair.x + pair.y;
}
CASE(misaligned_shared) {
  Device<float> out(64);
  misaligned_shared<<<1, 64>>>(out, 1);
}

__device__ uint32_t ldmatrix_x1(uint32_t address) {
  uint32_t fragment;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(fragment) : "r"(address));
  return fragment;
}

__global__ void ldmatrix_row_misaligned(uint32_t *out) {
  __shared__ __align__(16) __half tile[8 * 12 + 8]; // rows of 24 bytes
  for (int i = threadIdx.x; i < 104; i += 32)
    tile[i] = __half(1.f);
  __syncwarp();
  out[threadIdx.x] = ldmatrix_x1(shared_address(tile + threadIdx.x % 8 * 12)); // fault(ldmatrix_row_misaligned): misaligned
}
CASE(ldmatrix_row_misaligned) {
  Device<uint32_t> out(32);
  ldmatrix_row_misaligned<<<1, 32>>>(out);
}

// --- uninitialised -----------------------------------------------------------------------------------------

__global__ void shared_never_written(float *out, int n) {
  __shared__ float sums[32];
  if (n > 32)
    sums[threadIdx.x] = 0.f;
  out[threadIdx.x] += sums[threadIdx.x]; // fault(shared_never_written): uninitialised read
}
CASE(shared_never_written) {
  Device<float> out(32);
  shared_never_written<<<1, 32>>>(out, 32);
}

__global__ void tile_half_filled(const float *in, float *out, int n) {
  __shared__ float tile[64];
  if (int(threadIdx.x) < n)
    tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x]; // fault(tile_half_filled): uninitialised read
}
CASE(tile_half_filled) {
  Device<float> in(64), out(64);
  tile_half_filled<<<1, 64>>>(in, out, 50);
}

__global__ void local_never_written(float *out, int n) {
  float history[16];
  for (int i = 0; i < n; i++)
    history[(i * 3) % 16] = float(i);
  float sum = 0.f;
  for (int i = 0; i < 16; i++)
    sum += history[(i * n) % 16]; // fault(local_never_written): uninitialised read
  out[threadIdx.x] = sum;
}
CASE(local_never_written) {
  Device<float> out(32);
  local_never_written<<<1, 32>>>(out, 5);
}

__global__ void global_never_written(float *sum, const float *in) {
  sum[threadIdx.x] += in[threadIdx.x]; // fault(global_never_written): uninitialised read
}
CASE(global_never_written) {
  float *sum;
  cudaMalloc(&sum, 32 * sizeof(float));
  Device<float> in(32);
  global_never_written<<<1, 32>>>(sum, in);
  cudaFree(sum);
}

__global__ void counter_never_reset(int *counter) {
  atomicAdd(counter, 1); // fault(counter_never_reset): uninitialised read
}
CASE(counter_never_reset) {
  int *counter;
  cudaMalloc(&counter, sizeof(int));
  counter_never_reset<<<1, 32>>>(counter);
  cudaFree(counter);
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

__global__ void rows_overlap(float *out, int row) {
  out[blockIdx.x * (row - 1) + threadIdx.x] = float(blockIdx.x) + 1.f; // fault(rows_overlap): race between blocks
}
CASE(rows_overlap) {
  Device<float> out(256);
  rows_overlap<<<4, 64>>>(out, 64);
}

// --- asynchronous copies -----------------------------------------------------------------------------------

__global__ void copy_without_wait(const float4 *in, float4 *out) {
  __shared__ float4 tile[64];
  __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x], sizeof(float4));
  __pipeline_commit();
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x]; // fault(copy_without_wait): copy not waited for
}
CASE(copy_without_wait) {
  Device<float4> in(64), out(64);
  copy_without_wait<<<1, 64>>>(in, out);
}

__global__ void waits_for_too_few_groups(const float4 *in, float4 *out) {
  __shared__ float4 tiles[2][64];
  for (int stage = 0; stage < 2; stage++) {
    __pipeline_memcpy_async(&tiles[stage][threadIdx.x], &in[stage * 64 + threadIdx.x], sizeof(float4));
    __pipeline_commit();
  }
  __pipeline_wait_prior(1);
  __syncthreads();
  out[threadIdx.x] = tiles[0][threadIdx.x];
  out[threadIdx.x + 64] = tiles[1][threadIdx.x]; // fault(waits_for_too_few_groups): copy not waited for
}
CASE(waits_for_too_few_groups) {
  Device<float4> in(128), out(128);
  waits_for_too_few_groups<<<1, 64>>>(in, out);
}

__global__ void wait_without_barrier(const float4 *in, float4 *out) {
  __shared__ float4 tile[64];
  __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x], sizeof(float4));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = tile[63 - threadIdx.x]; // fault(wait_without_barrier): race between warps
}
CASE(wait_without_barrier) {
  Device<float4> in(64), out(64);
  wait_without_barrier<<<1, 64>>>(in, out);
}

__global__ void copy_into_tile_in_use(const float4 *in, float4 *out, int tiles) {
  __shared__ float4 tile[64];
  float sum = 0.f;
  for (int t = 0; t < tiles; t++) {
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[t * 64 + threadIdx.x], sizeof(float4)); // fault(copy_into_tile_in_use): race between warps
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    sum += tile[63 - threadIdx.x].x;
  }
  out[threadIdx.x].x = sum;
}
CASE(copy_into_tile_in_use) {
  Device<float4> in(256), out(64);
  copy_into_tile_in_use<<<1, 64>>>(in, out, 4);
}

// --- barriers ----------------------------------------------------------------------------------------------

__global__ void barrier_for_some_lanes(float *out) {
  if (threadIdx.x % 32 < 16)
    __syncthreads(); // fault(barrier_for_some_lanes): barrier
  out[threadIdx.x] = 1.f;
}
CASE(barrier_for_some_lanes) {
  Device<float> out(64);
  barrier_for_some_lanes<<<1, 64>>>(out);
}

__global__ void barrier_in_both_branches(float *out) {
  if (threadIdx.x < 32) {
    out[threadIdx.x] = 1.f;
    __syncthreads();
    out[threadIdx.x + 64] = 3.f;
  } else {
    out[threadIdx.x] = 2.f;
    __syncthreads(); // fault(barrier_in_both_branches): barrier
    out[threadIdx.x + 64] = 4.f;
  }
}
CASE(barrier_in_both_branches) {
  Device<float> out(128);
  barrier_in_both_branches<<<1, 64>>>(out);
}

__global__ void barrier_with_wrong_count(float *out) {
  if (threadIdx.x < 64)
    asm volatile("bar.sync 1, 96;" ::: "memory"); // fault(barrier_with_wrong_count): barrier
  out[threadIdx.x] = 1.f;
}
CASE(barrier_with_wrong_count) {
  Device<float> out(128);
  barrier_with_wrong_count<<<1, 128>>>(out);
}

__global__ void barrier_with_odd_count(float *out, int count) { // of a constant ptxas itself would say so
  asm volatile("bar.sync 1, %0;" ::"r"(count) : "memory"); // fault(barrier_with_odd_count): barrier
  out[threadIdx.x] = 1.f;
}
CASE(barrier_with_odd_count) {
  Device<float> out(64);
  barrier_with_odd_count<<<1, 64>>>(out, 48);
}

__global__ void barrier_counts_differ(float *out) {
  if (threadIdx.x < 32)
    asm volatile("bar.sync 1, 64;" ::: "memory");
  else
    asm volatile("bar.sync 1, 96;" ::: "memory"); // fault(barrier_counts_differ): barrier
  out[threadIdx.x] = 1.f;
}
CASE(barrier_counts_differ) {
  Device<float> out(64);
  barrier_counts_differ<<<1, 64>>>(out);
}

__global__ void mbarrier_arrives_too_often(int *out) {
  __shared__ __align__(8) uint64_t barrier;
  const uint32_t address = shared_address(&barrier);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address) : "memory");
  __syncthreads();
  uint64_t state;
  asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 2;" : "=l"(state) : "r"(address) : "memory"); // fault(mbarrier_arrives_too_often): barrier
  out[threadIdx.x] = int(state != 0);
}
CASE(mbarrier_arrives_too_often) {
  Device<int> out(32);
  mbarrier_arrives_too_often<<<1, 32>>>(out);
}

// --- masks -------------------------------------------------------------------------------------------------

__global__ void lane_not_in_mask(float *out) {
  out[threadIdx.x] = __shfl_xor_sync(0x0000ffff, float(threadIdx.x), 1); // fault(lane_not_in_mask): mask
}
CASE(lane_not_in_mask) {
  Device<float> out(32);
  lane_not_in_mask<<<1, 32>>>(out);
}

__global__ void mask_names_absent_lanes(float *out) {
  float sum = float(threadIdx.x);
  for (int half = 16; half > 0; half /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, half); // fault(mask_names_absent_lanes): mask
  out[threadIdx.x] = sum;
}
CASE(mask_names_absent_lanes) {
  Device<float> out(48);
  mask_names_absent_lanes<<<1, 48>>>(out);
}

__global__ void shuffle_in_a_branch(float *out) {
  const float mine = float(threadIdx.x);
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_sync(0xffffffff, mine, threadIdx.x + 16); // fault(shuffle_in_a_branch): mask
}
CASE(shuffle_in_a_branch) {
  Device<float> out(32);
  shuffle_in_a_branch<<<1, 32>>>(out);
}

__global__ void syncwarp_without_oneself(float *out) {
  __syncwarp(0x0000ffff); // fault(syncwarp_without_oneself): mask
  out[threadIdx.x] = 1.f;
}
CASE(syncwarp_without_oneself) {
  Device<float> out(32);
  syncwarp_without_oneself<<<1, 32>>>(out);
}

__global__ void mma_with_half_a_warp(float *out) {
  float d[4] = {};
  if (threadIdx.x < 16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(threadIdx.x)); // fault(mma_with_half_a_warp): mask
  out[threadIdx.x] = d[0];
}
CASE(mma_with_half_a_warp) {
  Device<float> out(32);
  mma_with_half_a_warp<<<1, 32>>>(out);
}

// --- memory of the host and the device ---------------------------------------------------------------------

__global__ void add_one(float *values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    values[i] += 1.f; // fault(used_after_free): use after free; fault(host_pointer): host pointer
}

CASE(used_after_free) {
  float *values;
  cudaMalloc(&values, 128 * sizeof(float));
  cudaMemset(values, 0, 128 * sizeof(float));
  cudaFree(values);
  add_one<<<1, 128>>>(values, 128);
}

CASE(host_pointer) {
  std::vector<float> values(128);
  add_one<<<1, 128>>>(values.data(), 128);
}

CASE(host_reads_device_memory) {
  Device<float> values(128);
  add_one<<<1, 128>>>(values, 128);
  cudaDeviceSynchronize();
  printf("%g\n", values.data[5]); // fault(host_reads_device_memory): host access
}

CASE(freed_twice) {
  float *values;
  cudaMalloc(&values, 128);
  cudaFree(values);
  cudaFree(values); // fault(freed_twice): bad free
}

CASE(freed_in_the_middle) {
  float *values;
  cudaMalloc(&values, 128);
  cudaFree(values + 4); // fault(freed_in_the_middle): bad free
  cudaFree(values);
}

CASE(never_freed) {
  float *values;
  cudaMalloc(&values, 128); // fault(never_freed): leak
  cudaMemset(values, 0, 128);
}

CASE(copy_too_large) {
  Device<float> values(100);
  std::vector<float> host(128);
  cudaMemcpy(values, host.data(), 128 * sizeof(float), cudaMemcpyHostToDevice); // fault(copy_too_large): bad copy
}

CASE(copy_with_swapped_pointers) {
  Device<float> values(128);
  std::vector<float> host(128);
  cudaMemcpy(host.data(), values, 128 * sizeof(float), cudaMemcpyHostToDevice); // fault(copy_with_swapped_pointers): bad copy
}

CASE(copy_within_the_device_by_host_kind) {
  Device<float> from(128), to(128);
  cudaMemcpy(to, from, 128 * sizeof(float), cudaMemcpyHostToDevice); // fault(copy_within_the_device_by_host_kind): bad copy
}

CASE(copied_after_free) {
  float *values;
  std::vector<float> host(32);
  cudaMalloc(&values, 128);
  cudaMemset(values, 0, 128);
  cudaFree(values);
  cudaMemcpy(host.data(), values, 128, cudaMemcpyDeviceToHost); // fault(copied_after_free): use after free
}

__global__ void writes_all_but_the_last_tile(float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = float(i);
}
CASE(last_tile_unwritten) {
  float *out;
  std::vector<float> host(100);
  cudaMalloc(&out, 100 * sizeof(float));
  writes_all_but_the_last_tile<<<100 / 32, 32>>>(out, 100);
  cudaMemcpy(host.data(), out, 100 * sizeof(float), cudaMemcpyDeviceToHost); // fault(last_tile_unwritten): unwritten output
  cudaFree(out);
}

CASE(block_too_large) {
  Device<float> values(2048);
  add_one<<<1, 2048>>>(values, 2048); // fault(block_too_large): bad launch
  printf("%s\n", cudaGetErrorName(cudaGetLastError()));
}

CASE(too_much_shared_memory) {
  Device<float> out(64);
  dynamic_too_small<<<1, 64, 64 * 1024>>>(out); // fault(too_much_shared_memory): bad launch
  printf("%s\n", cudaGetErrorName(cudaGetLastError()));
}

CASE(nobody_asks_for_the_error) {
  Device<float> values(64);
  add_one<<<dim3(1, 70000), 64>>>(values, 64); // fault(nobody_asks_for_the_error): unchecked error
}

__global__ void frees_twice(int *out) {
  int *const own = static_cast<int *>(malloc(64));
  own[0] = 3;
  *out = own[0];
  free(own);
  free(own); // fault(kernel_frees_twice): bad free
}
CASE(kernel_frees_twice) {
  Device<int> out(1);
  frees_twice<<<1, 1>>>(out);
}

} // namespace
