// Warps, atomics, flags and copies that look as if something were wrong with them, and are right.
#include "corpus.h"

#include <cooperative_groups.h>
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

namespace {

namespace cg = cooperative_groups;

__device__ uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

// --- the lanes of a warp -----------------------------------------------------------------------------------

__global__ void reduction_by_shuffles(const float *in, float *out) {
  float sum = in[threadIdx.x] + 1.f;
  for (int half = 16; half > 0; half /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, half);
  out[threadIdx.x] = sum;
}
CASE(reduction_by_shuffles) {
  Device<float> in(32), out(32);
  reduction_by_shuffles<<<1, 32>>>(in, out);
}

__global__ void half_a_warp_sums(float *out) {
  if (threadIdx.x < 16) {
    float sum = float(threadIdx.x);
    for (int half = 8; half > 0; half /= 2)
      sum += __shfl_down_sync(0x0000ffff, sum, half); // upper lanes read outside the mask; nobody uses that
    if (threadIdx.x == 0)
      *out = sum;
  }
}
CASE(half_a_warp_sums) {
  Device<float> out(1);
  half_a_warp_sums<<<1, 32>>>(out);
}

__global__ void segments_of_16(float *out) {
  out[threadIdx.x] = __shfl_down_sync(0xffffffff, float(threadIdx.x), 8, 16);
}
CASE(segments_of_16) {
  Device<float> out(32);
  segments_of_16<<<1, 32>>>(out);
}

__global__ void partial_warp_with_its_mask(float *out) {
  const unsigned mask = __activemask(); // 48 threads: the second warp has 16 lanes
  out[threadIdx.x] = __shfl_xor_sync(mask, float(threadIdx.x), 1);
}
CASE(partial_warp_with_its_mask) {
  Device<float> out(48);
  partial_warp_with_its_mask<<<1, 48>>>(out);
}

__global__ void syncwarp_of_both_halves(float *out) {
  __shared__ float tile[32];
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  tile[threadIdx.x] = float(threadIdx.x);
  __syncwarp(mask);
  out[threadIdx.x] = tile[threadIdx.x ^ 15];
}
CASE(syncwarp_of_both_halves) {
  Device<float> out(32);
  syncwarp_of_both_halves<<<1, 32>>>(out);
}

__global__ void syncwarp_in_divergent_branches(float *out) {
  __shared__ float tile[32];
  if (threadIdx.x % 2) {
    tile[threadIdx.x] = 1.f;
    __syncwarp(0xaaaaaaaa);
    out[threadIdx.x] = tile[threadIdx.x ^ 2];
  } else {
    tile[threadIdx.x] = 2.f;
    __syncwarp(0x55555555);
    out[threadIdx.x] = tile[threadIdx.x ^ 2];
  }
}
CASE(syncwarp_in_divergent_branches) {
  Device<float> out(32);
  syncwarp_in_divergent_branches<<<1, 32>>>(out);
}

__global__ void leader_fetches_for_all(int *counter, int *out) {
  const unsigned active = __activemask();
  const int leader = __ffs(active) - 1;
  int base = 0;
  if (int(threadIdx.x) % 32 == leader)
    base = atomicAdd(counter, __popc(active));
  base = __shfl_sync(active, base, leader);
  out[base + __popc(active & ((1u << threadIdx.x % 32) - 1))] = 1;
}
CASE(leader_fetches_for_all) {
  Device<int> counter(1), out(256);
  leader_fetches_for_all<<<4, 64>>>(counter, out);
}

__global__ void group_tiles(float *out) {
  __shared__ float tile[64];
  const auto group = cg::tiled_partition<8>(cg::this_thread_block());
  tile[threadIdx.x] = float(threadIdx.x);
  group.sync();
  out[threadIdx.x] = tile[threadIdx.x ^ 7] + group.shfl_xor(float(threadIdx.x), 3);
}
CASE(group_tiles) {
  Device<float> out(64);
  group_tiles<<<1, 64>>>(out);
}

__device__ uint32_t ldmatrix_x1(uint32_t address) {
  uint32_t fragment;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(fragment)
               : "r"(address)
               : "memory");
  return fragment;
}

__global__ void tile_written_after_ldmatrix(uint32_t *out, int rounds) {
  __shared__ __align__(16) __half tile[64];
  uint32_t sum = 0;
  for (int round = 0; round < rounds; round++) {
    // All lanes took part in the ldmatrix of the round before, so it has read what is overwritten here.
    tile[2 * threadIdx.x] = tile[2 * threadIdx.x + 1] = __half(float(round));
    __syncwarp();
    sum += ldmatrix_x1(shared_address(tile + threadIdx.x % 8 * 8));
  }
  out[threadIdx.x] = sum;
}
CASE(tile_written_after_ldmatrix) {
  Device<uint32_t> out(32);
  tile_written_after_ldmatrix<<<1, 32>>>(out, 4);
}

__global__ void copies_after_ldmatrix_and_syncwarp(const float4 *in, uint32_t *out, int rounds) {
  __shared__ float4 tile[32];
  uint32_t sum = 0;
  for (int round = 0; round < rounds; round++) {
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[round * 32 + threadIdx.x], sizeof(float4));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncwarp();
    for (int row = 0; row < 32; row += 8)
      sum += ldmatrix_x1(shared_address(&tile[row + threadIdx.x % 8]));
    __syncwarp();
  }
  out[threadIdx.x] = sum;
}
CASE(copies_after_ldmatrix_and_syncwarp) {
  Device<float4> in(128);
  Device<uint32_t> out(32);
  copies_after_ldmatrix_and_syncwarp<<<1, 32>>>(in, out, 4);
}

// Warps 1 to 4 read what warp 0 copied and stored; warp 0 waits for them at a barrier of their own.
__global__ void four_readers_per_tile(const float4 *in, uint32_t *out, int rounds) {
  __shared__ float4 tile[32];
  __shared__ uint32_t row[32], word;
  uint32_t sum = 0;
  for (int round = 0; round < rounds; round++) {
    if (threadIdx.x < 32) {
      __pipeline_memcpy_async(&tile[threadIdx.x], &in[round * 32 + threadIdx.x], sizeof(float4));
      row[threadIdx.x] = threadIdx.x + round;
      if (threadIdx.x == 0)
        word = round;
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    asm volatile("bar.sync 2;" ::: "memory");
    if (threadIdx.x >= 32)
      for (int i = 0; i < 32; i += 8)
        sum += ldmatrix_x1(shared_address(&tile[i + threadIdx.x % 8])) + row[threadIdx.x % 32] + word;
    asm volatile("bar.sync 1, 160;" ::: "memory");
  }
  out[threadIdx.x] = sum;
}
CASE(four_readers_per_tile) {
  Device<float4> in(128);
  Device<uint32_t> out(160);
  four_readers_per_tile<<<1, 160>>>(in, out, 4);
}

// The reader between the first and the last needs no barrier with those who write other words of the row.
__global__ void readers_of_neighbouring_words(int *out) {
  __shared__ int words[32];
  if (threadIdx.x < 32)
    words[threadIdx.x] = threadIdx.x;
  __syncthreads();
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 < 8)
    out[threadIdx.x] = words[threadIdx.x % 8];
  if (threadIdx.x % 32 == 0)
    words[8 + warp] = warp + 1;
}
CASE(readers_of_neighbouring_words) {
  Device<int> out(160);
  readers_of_neighbouring_words<<<1, 160>>>(out);
}

__global__ void votes_and_matches(const int *in, int *out) {
  const unsigned same = __match_any_sync(0xffffffff, in[threadIdx.x] + threadIdx.x % 3);
  out[threadIdx.x] = __popc(same) + __popc(__ballot_sync(0xffffffff, threadIdx.x % 2));
}
CASE(votes_and_matches) {
  Device<int> in(32), out(32);
  votes_and_matches<<<1, 32>>>(in, out);
}

// --- atomics and flags -------------------------------------------------------------------------------------

__global__ void histogram(const int *in, int *out) {
  __shared__ int bins[8];
  if (threadIdx.x < 8)
    bins[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&bins[(in[threadIdx.x] + threadIdx.x) % 8], 1);
  __syncthreads();
  if (threadIdx.x < 8)
    atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}
CASE(histogram) {
  Device<int> in(256), out(8);
  histogram<<<4, 256>>>(in, out);
}

__global__ void last_block_sums(float *parts, unsigned *ticket, float *sum) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = float(blockIdx.x) + 1.f;
    __threadfence();
    is_last = atomicInc(ticket, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    for (int i = 0; i < int(gridDim.x); i++)
      *sum += parts[i];
    *ticket = 0;
  }
}
CASE(last_block_sums) {
  Device<float> parts(8), sum(1);
  Device<unsigned> ticket(1);
  last_block_sums<<<8, 64>>>(parts, ticket, sum);
}

__global__ void lock_around_a_sum(int *lock, float *sum) {
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0)
      ;
    __threadfence();
    *sum += float(blockIdx.x);
    __threadfence();
    atomicExch(lock, 0);
  }
}
CASE(lock_around_a_sum) {
  Device<int> lock(1);
  Device<float> sum(1);
  lock_around_a_sum<<<16, 32>>>(lock, sum);
}

__global__ void flag_with_fence(int *out, int n) {
  __shared__ int data;
  __shared__ int flag;
  if (threadIdx.x == 0)
    flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    data = n;
    __threadfence_block();
    *const_cast<volatile int *>(&flag) = 1;
  } else if (threadIdx.x == 32) {
    while (*const_cast<volatile int *>(&flag) == 0)
      ;
    __threadfence_block();
    *out = data;
  }
}
CASE(flag_with_fence) {
  Device<int> out(1);
  flag_with_fence<<<1, 64>>>(out, 42);
}

__global__ void blocks_wait_for_block_0(float *data, int *flag, float *out) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = float(threadIdx.x);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
      atomicExch(flag, 1);
  } else {
    if (threadIdx.x == 0)
      while (atomicAdd(flag, 0) == 0)
        ;
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = data[63 - threadIdx.x];
  }
}
CASE(blocks_wait_for_block_0) {
  Device<float> data(64), out(256);
  Device<int> flag(1);
  blocks_wait_for_block_0<<<4, 64>>>(data, flag, out);
}

__global__ void grid_barrier(float *values, float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  values[i] = float(i);
  cg::this_grid().sync();
  out[i] = values[n - 1 - i];
}
CASE(grid_barrier) {
  Device<float> values(256), out(256);
  float *from = values, *to = out;
  void *arguments[] = {&from, &to};
  cudaLaunchCooperativeKernel(reinterpret_cast<void *>(grid_barrier), 4, 64, arguments, 0, nullptr);
}

__global__ void maximum_of_all(const float *in, int *maximum) {
  atomicMax(maximum, __float_as_int(in[threadIdx.x] + float(blockIdx.x)));
}
CASE(maximum_of_all) {
  Device<float> in(64);
  Device<int> maximum(1);
  maximum_of_all<<<4, 64>>>(in, maximum);
}

__global__ void blocks_add_floats(const float *in, float *sum) {
  atomicAdd(sum, in[blockIdx.x]); // remark(blocks_add_floats): order of additions
}
CASE(blocks_add_floats) {
  Device<float> in(4), sum(1);
  blocks_add_floats<<<4, 1>>>(in, sum);
}

__global__ void blocks_add_in_turn(const float *in, float *sum, int *turn) {
  int now;
  do
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  while (now != int(blockIdx.x));
  atomicAdd(sum, in[blockIdx.x]);
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(now + 1) : "memory");
}
CASE(blocks_add_in_turn) {
  Device<float> in(4), sum(1);
  Device<int> turn(1);
  blocks_add_in_turn<<<4, 1>>>(in, sum, turn);
}

__global__ void blocks_add_whole_numbers(const int *in, int *sum) { atomicAdd(sum, in[blockIdx.x]); }
CASE(blocks_add_whole_numbers) {
  Device<int> in(4), sum(1);
  blocks_add_whole_numbers<<<4, 1>>>(in, sum);
}

// --- asynchronous copies -----------------------------------------------------------------------------------

__global__ void pipeline_of_two(const float4 *in, float4 *out, int tiles) {
  __shared__ float4 buffers[2][64];
  const auto fetch = [&](int t) {
    if (t < tiles)
      __pipeline_memcpy_async(&buffers[t % 2][threadIdx.x], &in[t * 64 + threadIdx.x], sizeof(float4));
    __pipeline_commit();
  };
  fetch(0);
  float sum = 0.f;
  for (int t = 0; t < tiles; t++) {
    fetch(t + 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    sum += buffers[t % 2][63 - threadIdx.x].x;
    __syncthreads();
  }
  out[threadIdx.x].x = sum;
}
CASE(pipeline_of_two) {
  Device<float4> in(512), out(64);
  pipeline_of_two<<<1, 64>>>(in, out, 8);
}

__global__ void copy_of_ones_own(const float4 *in, float4 *out) {
  __shared__ float4 tile[64];
  __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x], sizeof(float4));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = tile[threadIdx.x]; // what a thread has copied and waited for it may read
}
CASE(copy_of_ones_own) {
  Device<float4> in(64), out(64);
  copy_of_ones_own<<<1, 64>>>(in, out);
}

__global__ void copy_with_zero_fill(const float4 *in, float4 *out, int n) {
  __shared__ float4 tile[64];
  const bool is_in = int(threadIdx.x) < n;
  __pipeline_memcpy_async(&tile[threadIdx.x], &in[is_in ? threadIdx.x : 0], sizeof(float4), is_in ? 0 : 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
CASE(copy_with_zero_fill) {
  Device<float4> in(40), out(64);
  copy_with_zero_fill<<<1, 64>>>(in, out, 40);
}

/// The source's last bytes: what is not read may lie outside the allocation.
__global__ void copy_of_the_last_bytes(const char *in, float4 *out, unsigned bytes) {
  __shared__ float4 tile[4];
  const unsigned begin = 16 * threadIdx.x, there = min(16u, bytes - begin);
  __pipeline_memcpy_async(&tile[threadIdx.x], in + begin, sizeof(float4), 16 - there);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(copy_of_the_last_bytes) {
  Device<char> in(52);
  Device<float4> out(4);
  copy_of_the_last_bytes<<<1, 4>>>(in, out, 52);
}

/// The lanes that the mask also names have nothing left to do.
__global__ void skipped_by_lanes_that_exit(int *out, int lanes) {
  if (int(threadIdx.x) < lanes)
    out[threadIdx.x] = __shfl_xor_sync(0xffffffff, int(threadIdx.x), 1);
}
CASE(skipped_by_lanes_that_exit) {
  Device<int> out(32);
  skipped_by_lanes_that_exit<<<1, 32>>>(out, 16);
}

// --- several barriers of the grid --------------------------------------------------------------------------

__global__ void counter_set_before_a_grid_sync(int *counter) {
  const auto grid = cg::this_grid();
  if (grid.thread_rank() == 0)
    *counter = 5;
  __syncthreads();
  if (blockIdx.x == 0)
    atomicAdd(counter, 1);
  grid.sync();
  atomicAdd(counter, 1);
}
CASE(counter_set_before_a_grid_sync) {
  Device<int> counter(1);
  int *where = counter;
  void *arguments[] = {&where};
  cudaLaunchCooperativeKernel(reinterpret_cast<void *>(counter_set_before_a_grid_sync), 4, 64, arguments, 0,
                              nullptr);
}

__global__ void grid_syncs_in_rounds(int *now, int *next, int rounds) {
  const auto grid = cg::this_grid();
  const unsigned i = grid.thread_rank(), n = grid.size();
  for (int round = 0; round < rounds; ++round) {
    next[i] = now[(i + 1) % n] + 1;
    grid.sync();
    now[i] = next[(i + 1) % n];
    grid.sync();
  }
}
CASE(grid_syncs_in_rounds) {
  Device<int> now(256), next(256);
  int *from = now, *to = next, rounds = 3;
  void *arguments[] = {&from, &to, &rounds};
  cudaLaunchCooperativeKernel(reinterpret_cast<void *>(grid_syncs_in_rounds), 4, 64, arguments, 0, nullptr);
}

__global__ void counted_rounds(int *now, int *next, unsigned *arrived, unsigned rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  for (unsigned round = 1; round <= rounds; ++round) {
    next[i] = now[(i + 64) % n] + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(arrived, 1);
      while (*(volatile unsigned *)arrived < round * gridDim.x) {
      }
      __threadfence();
    }
    __syncthreads();
    int *const other = now;
    now = next;
    next = other;
  }
}
CASE(counted_rounds) {
  Device<int> now(256), next(256);
  Device<unsigned> arrived(1);
  counted_rounds<<<4, 64>>>(now, next, arrived, 4);
}

/// Thread 0 waits for the other block, and a barrier makes that known to its own.
__global__ void thread_0_waits_for_its_block(int *data, int *flag, int *out) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = int(threadIdx.x) + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicExch(flag, 1);
    }
  } else {
    if (threadIdx.x == 0) {
      while (atomicAdd(flag, 0) == 0) {
      }
      __threadfence();
    }
    __syncthreads();
    out[threadIdx.x] = data[threadIdx.x];
  }
}
CASE(thread_0_waits_for_its_block) {
  Device<int> data(64), flag(1), out(64);
  thread_0_waits_for_its_block<<<2, 64>>>(data, flag, out);
}

__global__ void lane_0_waits_for_its_warp(int *data, int *flag, int *out) {
  if (blockIdx.x == 0) {
    data[threadIdx.x] = int(threadIdx.x) + 1;
    __syncwarp();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicExch(flag, 1);
    }
  } else {
    if (threadIdx.x == 0) {
      while (atomicAdd(flag, 0) == 0) {
      }
      __threadfence();
    }
    __syncwarp();
    out[threadIdx.x] = data[threadIdx.x];
  }
}
CASE(lane_0_waits_for_its_warp) {
  Device<int> data(32), flag(1), out(32);
  lane_0_waits_for_its_warp<<<2, 32>>>(data, flag, out);
}

/// What block 0 hands to block 1, that one hands on to block 2.
__global__ void handed_on_from_block_to_block(int *data, int *flags, int *out) {
  if (blockIdx.x == 0)
    data[threadIdx.x] = int(threadIdx.x);
  if (blockIdx.x > 0) {
    if (threadIdx.x == 0) {
      while (atomicAdd(&flags[blockIdx.x - 1], 0) == 0) {
      }
      __threadfence();
    }
    __syncthreads();
  }
  if (blockIdx.x == 2)
    out[threadIdx.x] = data[63 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicExch(&flags[blockIdx.x], 1);
  }
}
CASE(handed_on_from_block_to_block) {
  Device<int> data(64), flags(3), out(64);
  handed_on_from_block_to_block<<<3, 64>>>(data, flags, out);
}

} // namespace
