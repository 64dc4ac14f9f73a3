// Planted faults of copies, barriers and masks. The line that must be named has a comment: fault, the case in
// brackets, a colon, the kind.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "corpus.h"

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

namespace {

__device__ uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

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

__device__ uint32_t ldmatrix_x4(const void *row) {
  uint32_t a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(shared_address(row))
               : "memory");
  return a + b + c + d;
}

// ldmatrix does not order the lanes: the copies of one lane may land before others have read.
__global__ void copy_after_ldmatrix_of_the_warp(const float4 *in, uint32_t *out, int tiles) {
  __shared__ float4 tile[32];
  uint32_t sum = 0;
  for (int t = 0; t < tiles; t++) {
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[t * 32 + threadIdx.x], sizeof(float4)); // fault(copy_after_ldmatrix_of_the_warp): race in a warp
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncwarp();
    sum += ldmatrix_x4(&tile[threadIdx.x]);
  }
  out[threadIdx.x] = sum;
}
CASE(copy_after_ldmatrix_of_the_warp) {
  Device<float4> in(128);
  Device<uint32_t> out(32);
  copy_after_ldmatrix_of_the_warp<<<1, 32>>>(in, out, 4);
}

__global__ void copy_after_ldmatrix_of_other_warps(const float4 *in, uint32_t *out, int tiles) {
  __shared__ float4 tile[128];
  uint32_t sum = 0;
  for (int t = 0; t < tiles; t++) {
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[t * 128 + threadIdx.x], sizeof(float4)); // fault(copy_after_ldmatrix_of_other_warps): race between warps
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    sum += ldmatrix_x4(&tile[(threadIdx.x + 32) % 128]);
  }
  out[threadIdx.x] = sum;
}
CASE(copy_after_ldmatrix_of_other_warps) {
  Device<float4> in(512);
  Device<uint32_t> out(128);
  copy_after_ldmatrix_of_other_warps<<<1, 128>>>(in, out, 4);
}

// Warp 0 waits for all readers of the tile except the second of four.
__device__ void meet_without_the_second() {
  if (threadIdx.x / 32 != 2)
    asm volatile("bar.sync 1, 128;" ::: "memory");
}
__global__ void copy_before_the_second_of_four_has_read(const float4 *in, uint32_t *out) {
  __shared__ float4 tile[32];
  const bool copies = threadIdx.x < 32;
  uint32_t sum = 0;
  if (copies)
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x], sizeof(float4));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  if (!copies)
    sum += ldmatrix_x4(&tile[threadIdx.x % 32]);
  meet_without_the_second();
  if (copies)
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x + 32], sizeof(float4)); // fault(copy_before_the_second_of_four_has_read): race between warps
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = sum;
}
CASE(copy_before_the_second_of_four_has_read) {
  Device<float4> in(64);
  Device<uint32_t> out(160);
  copy_before_the_second_of_four_has_read<<<1, 160>>>(in, out);
}

__global__ void store_before_the_second_of_four_has_read(const int *in, int *out) {
  __shared__ int tile[32];
  const bool stores = threadIdx.x < 32;
  if (stores)
    tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (!stores)
    out[threadIdx.x] = tile[threadIdx.x % 32];
  meet_without_the_second();
  if (stores)
    tile[threadIdx.x] = in[threadIdx.x] + 1; // fault(store_before_the_second_of_four_has_read): race between warps
  __syncthreads();
  out[threadIdx.x] += tile[0];
}
CASE(store_before_the_second_of_four_has_read) {
  Device<int> in(32), out(160);
  store_before_the_second_of_four_has_read<<<1, 160>>>(in, out);
}

__global__ void word_stored_before_the_second_of_four_has_read(const int *in, int *out) {
  __shared__ int word;
  if (threadIdx.x == 0)
    word = in[0];
  __syncthreads();
  if (threadIdx.x >= 32)
    out[threadIdx.x] = word;
  meet_without_the_second();
  if (threadIdx.x == 0)
    word = in[0] + 1; // fault(word_stored_before_the_second_of_four_has_read): race between warps
  __syncthreads();
  out[threadIdx.x] += word;
}
CASE(word_stored_before_the_second_of_four_has_read) {
  Device<int> in(1), out(160);
  word_stored_before_the_second_of_four_has_read<<<1, 160>>>(in, out);
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

} // namespace
