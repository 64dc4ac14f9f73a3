// Kernels that look as if something were wrong with them, and are right.
#include "corpus.h"

#include <cooperative_groups.h>
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

namespace {

namespace cg = cooperative_groups;

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
    *flag = 1;
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

// --- local memory and calls --------------------------------------------------------------------------------

__global__ void local_array(float *out, int n) {
  float history[16] = {};
  for (int i = 0; i < n; i++)
    history[(i * 7) % 16] += float(i);
  float sum = 0.f;
  for (int i = 0; i < 16; i++)
    sum += history[(i * n) % 16];
  out[threadIdx.x] = sum;
}
CASE(local_array) {
  Device<float> out(32);
  local_array<<<1, 32>>>(out, 9);
}

struct Padded {
  char tag;
  double value; // seven bytes of padding before it
};
__noinline__ __device__ Padded pick(const Padded *all, int i) { return all[i]; }
__global__ void structs_with_padding(double *out, int n) {
  Padded all[4];
  for (int i = 0; i < 4; i++) {
    all[i].tag = char(i);
    all[i].value = i * 2.0;
  }
  out[threadIdx.x] = pick(all, n % 4).value;
}
CASE(structs_with_padding) {
  Device<double> out(32);
  structs_with_padding<<<1, 32>>>(out, 7);
}

__noinline__ __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursion(int *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 8); }
CASE(recursion) {
  Device<int> out(32);
  recursion<<<1, 32>>>(out);
}

__constant__ float table[4] = {1.f, 2.f, 3.f, 4.f};
__device__ float total;
__global__ void variables_of_the_module(float *out) {
  if (threadIdx.x == 0)
    total = table[blockIdx.x % 4];
  __syncthreads();
  out[threadIdx.x] = table[threadIdx.x % 4] + total;
}
CASE(variables_of_the_module) {
  Device<float> out(64);
  variables_of_the_module<<<1, 64>>>(out);
}

__global__ void memory_from_the_heap(int *out) {
  int *const own = static_cast<int *>(malloc(4 * sizeof(int)));
  own[threadIdx.x % 4] = int(threadIdx.x);
  out[threadIdx.x] = own[threadIdx.x % 4];
  free(own);
}
CASE(memory_from_the_heap) {
  Device<int> out(32);
  memory_from_the_heap<<<1, 32>>>(out);
}

__global__ void sum_of_squares(const float *in, float *out, int n) {
  extern __shared__ float dynamic[];
  __shared__ float fixed[4];
  dynamic[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x < 4)
    fixed[threadIdx.x] = float(n);
  __syncthreads();
  out[threadIdx.x] = dynamic[n - 1 - threadIdx.x] + fixed[threadIdx.x % 4];
}
CASE(static_and_dynamic_shared) {
  Device<float> in(64), out(64);
  sum_of_squares<<<1, 64, 64 * sizeof(float)>>>(in, out, 64);
}

// --- the host ----------------------------------------------------------------------------------------------

CASE(managed_memory) {
  float *values;
  cudaMallocManaged(&values, 64 * sizeof(float));
  for (int i = 0; i < 64; i++)
    values[i] = float(i);
  in_place<<<1, 64>>>(values, 64);
  cudaDeviceSynchronize();
  printf("%g\n", values[3]);
  cudaFree(values);
}

CASE(pinned_memory) {
  float *values;
  cudaMallocHost(&values, 64 * sizeof(float));
  for (int i = 0; i < 64; i++)
    values[i] = float(i);
  in_place<<<1, 64>>>(values, 64);
  cudaDeviceSynchronize();
  printf("%g\n", values[3]);
  cudaFreeHost(values);
}

CASE(part_of_a_buffer_is_copied) {
  float *values;
  std::vector<float> host(64);
  cudaMalloc(&values, 128 * sizeof(float)); // twice what is used
  cudaMemcpy(values, host.data(), 64 * sizeof(float), cudaMemcpyHostToDevice);
  in_place<<<1, 64>>>(values, 64);
  cudaMemcpy(host.data(), values, 64 * sizeof(float), cudaMemcpyDeviceToHost);
  printf("%g\n", host[3]);
  cudaFree(values);
}

CASE(rows_with_a_pitch) {
  float *values;
  size_t pitch;
  std::vector<float> host(10 * 20);
  cudaMallocPitch(&values, &pitch, 10 * sizeof(float), 20);
  cudaMemcpy2D(values, pitch, host.data(), 40, 40, 20, cudaMemcpyHostToDevice);
  cudaMemcpy2D(host.data(), 40, values, pitch, 40, 20, cudaMemcpyDeviceToHost);
  cudaFree(values);
}

CASE(nothing_is_freed_and_copied) {
  Device<float> values(4);
  cudaFree(nullptr);
  cudaMemcpy(values, nullptr, 0, cudaMemcpyHostToDevice);
}

CASE(error_is_asked_for) {
  Device<float> values(64);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  in_place<<<1, 64, 0, stream>>>(values, 64);
  if (cudaGetLastError() != cudaSuccess)
    puts("it failed");
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}

CASE(memory_of_a_stream) {
  float *values;
  cudaMallocAsync(&values, 64 * sizeof(float), nullptr);
  cudaMemsetAsync(values, 0, 64 * sizeof(float), nullptr);
  in_place<<<1, 64>>>(values, 64);
  cudaFreeAsync(values, nullptr);
}

CASE(one_kernel_after_another) {
  Device<float> values(256);
  for (int i = 0; i < 3; i++)
    in_place<<<4, 64>>>(values, 256);
  shift_in_place<<<1, 128>>>(values);
}

// What static destructors free is no leak.
struct Global {
  float *data = nullptr;
  ~Global() { cudaFree(data); }
} global;
CASE(freed_by_a_static_destructor) {
  cudaMalloc(&global.data, 64);
  cudaMemset(global.data, 0, 64);
}

CASE(device_is_reset) {
  float *values;
  cudaMalloc(&values, 64);
  cudaMemset(values, 0, 64);
  cudaDeviceReset(); // frees it
}

} // namespace
