// Correct programs of cuda::barrier, cuda::pipeline and cuda::memcpy_async, as the CUDA programming guide
// teaches them, and of cooperative groups. None of them may be reported. Each checks its own result.
#include "corpus.h"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <vector>

#pragma nv_diag_suppress static_var_with_dynamic_init

namespace cg = cooperative_groups;

namespace {

constexpr int kThreads = 128;

/// `count` elements on the device with values 0, 1, 2, ...
struct Numbers : Device<int> {
  explicit Numbers(int count) : Device<int>(count) {
    std::vector<int> host(count);
    for (int i = 0; i < count; ++i)
      host[i] = i;
    cudaMemcpy(data, host.data(), bytes, cudaMemcpyHostToDevice);
  }
};

/// Ends the program when out[i] is not wanted(i) somewhere.
template <typename F> void expect(const int *out, int count, F wanted) {
  std::vector<int> host(count);
  cudaMemcpy(host.data(), out, count * sizeof(int), cudaMemcpyDeviceToHost);
  for (int i = 0; i < count; ++i)
    if (host[i] != wanted(i)) {
      fprintf(stderr, "element %d is %d and not %d\n", i, host[i], wanted(i));
      exit(3);
    }
}

// --- cuda::barrier -----------------------------------------------------------------------------------------

__global__ void arrive_and_wait(const int *in, int *out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ int tile[kThreads];
  if (threadIdx.x == 0)
    init(&barrier, blockDim.x);
  __syncthreads();
  for (int round = 0; round < 4; ++round) {
    tile[threadIdx.x] = in[round * kThreads + threadIdx.x];
    barrier.arrive_and_wait();
    out[round * kThreads + threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
    barrier.arrive_and_wait();
  }
}
CASE(arrive_and_wait) {
  Numbers in(4 * kThreads);
  Device<int> out(4 * kThreads);
  arrive_and_wait<<<1, kThreads>>>(in, out);
  expect(out, 4 * kThreads, [](int i) { return i / kThreads * kThreads + kThreads - 1 - i % kThreads; });
}

__global__ void arrive_then_wait(const int *in, int *out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ int tile[kThreads];
  if (threadIdx.x == 0)
    init(&barrier, blockDim.x);
  __syncthreads();
  tile[threadIdx.x] = in[threadIdx.x];
  auto token = barrier.arrive();
  const int own = in[threadIdx.x] * 3; // work that needs no one
  barrier.wait(std::move(token));
  out[threadIdx.x] = own + tile[threadIdx.x ^ 33];
}
CASE(arrive_then_wait) {
  Numbers in(kThreads);
  Device<int> out(kThreads);
  arrive_then_wait<<<1, kThreads>>>(in, out);
  expect(out, kThreads, [](int i) { return 3 * i + (i ^ 33); });
}

__global__ void producers_and_consumers(const int *in, int *out, int tiles) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ Barrier barriers[4]; // ready and filled, two of each
  __shared__ int buffer[2][64];
  if (threadIdx.x < 4)
    init(&barriers[threadIdx.x], blockDim.x);
  __syncthreads();
  if (threadIdx.x < 64) {
    for (int i = 0; i < tiles; ++i) {
      barriers[i % 2].arrive_and_wait();
      buffer[i % 2][threadIdx.x] = in[i * 64 + threadIdx.x];
      (void)barriers[2 + i % 2].arrive();
    }
  } else {
    (void)barriers[0].arrive();
    (void)barriers[1].arrive();
    for (int i = 0; i < tiles; ++i) {
      barriers[2 + i % 2].arrive_and_wait();
      out[i * 64 + threadIdx.x - 64] = buffer[i % 2][127 - threadIdx.x] + 1;
      (void)barriers[i % 2].arrive();
    }
  }
}
CASE(producers_and_consumers) {
  Numbers in(64 * 5);
  Device<int> out(64 * 5);
  producers_and_consumers<<<1, 128>>>(in, out, 5);
  expect(out, 64 * 5, [](int i) { return i / 64 * 64 + 63 - i % 64 + 1; });
}

__global__ void arrive_and_drop(int *out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ int tile[kThreads];
  if (threadIdx.x == 0)
    init(&barrier, blockDim.x);
  __syncthreads();
  tile[threadIdx.x] = 7 * threadIdx.x;
  if (threadIdx.x >= kThreads / 2) {
    barrier.arrive_and_drop();
    return;
  }
  barrier.arrive_and_wait();
  out[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
  barrier.arrive_and_wait();
}
CASE(arrive_and_drop) {
  Device<int> out(kThreads / 2);
  arrive_and_drop<<<1, kThreads>>>(out);
  expect(out, kThreads / 2, [](int i) { return 7 * (kThreads - 1 - i); });
}

// --- memcpy_async with a barrier ---------------------------------------------------------------------------

__global__ void copy_with_barrier(const int *in, int *out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ int tile[kThreads];
  if (threadIdx.x == 0)
    init(&barrier, blockDim.x);
  __syncthreads();
  for (int batch = 0; batch < 3; ++batch) {
    cuda::memcpy_async(tile + threadIdx.x, in + batch * kThreads + threadIdx.x, sizeof(int), barrier);
    barrier.arrive_and_wait();
    out[batch * kThreads + threadIdx.x] = tile[(threadIdx.x + 5) % kThreads];
    barrier.arrive_and_wait();
  }
}
CASE(copy_with_barrier) {
  Numbers in(3 * kThreads);
  Device<int> out(3 * kThreads);
  copy_with_barrier<<<1, kThreads>>>(in, out);
  expect(out, 3 * kThreads, [](int i) { return i / kThreads * kThreads + (i % kThreads + 5) % kThreads; });
}

__global__ void group_copy_with_barrier(const int *in, int *out) {
  extern __shared__ int tile[];
  const auto block = cg::this_thread_block();
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  if (block.thread_rank() == 0)
    init(&barrier, block.size());
  block.sync();
  for (int batch = 0; batch < 4; ++batch) {
    cuda::memcpy_async(block, tile, in + batch * block.size(), sizeof(int) * block.size(), barrier);
    barrier.arrive_and_wait();
    out[batch * block.size() + threadIdx.x] = tile[block.size() - 1 - threadIdx.x] * 2;
    barrier.arrive_and_wait();
  }
}
CASE(group_copy_with_barrier) {
  Numbers in(4 * kThreads);
  Device<int> out(4 * kThreads);
  group_copy_with_barrier<<<1, kThreads, kThreads * sizeof(int)>>>(in, out);
  expect(out, 4 * kThreads,
         [](int i) { return 2 * (i / kThreads * kThreads + kThreads - 1 - i % kThreads); });
}

__global__ void aligned_copy_with_barrier(const int4 *in, int4 *out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ alignas(16) int4 tile[kThreads];
  if (threadIdx.x == 0)
    init(&barrier, blockDim.x);
  __syncthreads();
  cuda::memcpy_async(tile + threadIdx.x, in + threadIdx.x, cuda::aligned_size_t<16>(16), barrier);
  barrier.arrive_and_wait();
  out[threadIdx.x] = tile[threadIdx.x ^ 64];
}
CASE(aligned_copy_with_barrier) {
  Numbers in(4 * kThreads);
  Device<int> out(4 * kThreads);
  aligned_copy_with_barrier<<<1, kThreads>>>(reinterpret_cast<int4 *>(in.data),
                                             reinterpret_cast<int4 *>(out.data));
  expect(out, 4 * kThreads, [](int i) { return i ^ 256; });
}

__global__ void two_copies_one_barrier(const int *a, const int *b, int *out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ int a_smem[kThreads], b_smem[kThreads];
  if (threadIdx.x == 0)
    init(&barrier, blockDim.x);
  __syncthreads();
  cuda::memcpy_async(&a_smem[threadIdx.x], &a[threadIdx.x], sizeof(int), barrier);
  cuda::memcpy_async(&b_smem[threadIdx.x], &b[threadIdx.x], sizeof(int), barrier);
  barrier.arrive_and_wait();
  out[threadIdx.x] = a_smem[threadIdx.x ^ 1] + b_smem[threadIdx.x ^ 96];
}
CASE(two_copies_one_barrier) {
  Numbers in(kThreads);
  Device<int> out(kThreads);
  two_copies_one_barrier<<<1, kThreads>>>(in, in, out);
  expect(out, kThreads, [](int i) { return (i ^ 1) + (i ^ 96); });
}

// --- cuda::pipeline ----------------------------------------------------------------------------------------

__global__ void one_stage(const int *in, int *out) {
  __shared__ int tile[kThreads];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;
  const auto block = cg::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &state);
  for (int batch = 0; batch < 4; ++batch) {
    pipeline.producer_acquire();
    cuda::memcpy_async(block, tile, in + batch * kThreads, sizeof(int) * kThreads, pipeline);
    pipeline.producer_commit();
    pipeline.consumer_wait();
    out[batch * kThreads + threadIdx.x] = tile[threadIdx.x ^ 127] + batch;
    pipeline.consumer_release();
  }
}
CASE(one_stage) {
  Numbers in(4 * kThreads);
  Device<int> out(4 * kThreads);
  one_stage<<<1, kThreads>>>(in, out);
  expect(out, 4 * kThreads, [](int i) { return (i ^ 127) + i / kThreads; });
}

template <int kStages> __global__ void several_stages(const int *in, int *out, int batches) {
  __shared__ int tile[kStages][kThreads];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  const auto block = cg::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &state);
  for (int compute = 0, fetch = 0; compute < batches; ++compute) {
    for (; fetch < batches && fetch < compute + kStages; ++fetch) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, tile[fetch % kStages], in + fetch * kThreads, sizeof(int) * kThreads,
                         pipeline);
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    out[compute * kThreads + threadIdx.x] = tile[compute % kStages][(threadIdx.x + 1) % kThreads];
    pipeline.consumer_release();
  }
}
CASE(two_stages) {
  Numbers in(6 * kThreads);
  Device<int> out(6 * kThreads);
  several_stages<2><<<1, kThreads>>>(in, out, 6);
  expect(out, 6 * kThreads, [](int i) { return i / kThreads * kThreads + (i % kThreads + 1) % kThreads; });
}
CASE(four_stages) {
  Numbers in(6 * kThreads);
  Device<int> out(6 * kThreads);
  several_stages<4><<<1, kThreads>>>(in, out, 6);
  expect(out, 6 * kThreads, [](int i) { return i / kThreads * kThreads + (i % kThreads + 1) % kThreads; });
}

__global__ void partitioned(const int *in, int *out, int batches) {
  __shared__ int tile[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  const auto block = cg::this_thread_block();
  const auto role = block.thread_rank() < 64 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipeline = cuda::make_pipeline(block, &state, role);
  if (role == cuda::pipeline_role::producer) {
    for (int i = 0; i < batches; ++i) {
      pipeline.producer_acquire();
      cuda::memcpy_async(&tile[i % 2][threadIdx.x], in + i * 64 + threadIdx.x, sizeof(int), pipeline);
      pipeline.producer_commit();
    }
  } else {
    for (int i = 0; i < batches; ++i) {
      pipeline.consumer_wait();
      out[i * 64 + threadIdx.x - 64] = tile[i % 2][127 - threadIdx.x];
      pipeline.consumer_release();
    }
  }
}
CASE(partitioned) {
  Numbers in(64 * 5);
  Device<int> out(64 * 5);
  partitioned<<<1, 128>>>(in, out, 5);
  expect(out, 64 * 5, [](int i) { return i / 64 * 64 + 63 - i % 64; });
}

__global__ void thread_scope(const int *in, int *out) {
  __shared__ int tile[2][kThreads];
  auto pipeline = cuda::make_pipeline();
  pipeline.producer_acquire();
  cuda::memcpy_async(&tile[0][threadIdx.x], &in[threadIdx.x], sizeof(int), pipeline);
  pipeline.producer_commit();
  for (int i = 0; i < 3; ++i) {
    if (i < 2) {
      pipeline.producer_acquire();
      cuda::memcpy_async(&tile[(i + 1) % 2][threadIdx.x], &in[(i + 1) * kThreads + threadIdx.x], sizeof(int),
                         pipeline);
      pipeline.producer_commit();
      cuda::pipeline_consumer_wait_prior<1>(pipeline);
    } else {
      cuda::pipeline_consumer_wait_prior<0>(pipeline);
    }
    out[i * kThreads + threadIdx.x] = tile[i % 2][threadIdx.x]; // each thread its own
    pipeline.consumer_release();
  }
}
CASE(thread_scope) {
  Numbers in(3 * kThreads);
  Device<int> out(3 * kThreads);
  thread_scope<<<1, kThreads>>>(in, out);
  expect(out, 3 * kThreads, [](int i) { return i; });
}

// --- cooperative groups ------------------------------------------------------------------------------------

__global__ void group_copy(const int *in, int *out) {
  __shared__ int tile[kThreads];
  const auto block = cg::this_thread_block();
  for (int batch = 0; batch < 2; ++batch) {
    cg::memcpy_async(block, tile, in + batch * kThreads, sizeof(int) * kThreads);
    cg::wait(block);
    out[batch * kThreads + threadIdx.x] = tile[threadIdx.x ^ 7];
    block.sync();
  }
}
CASE(group_copy) {
  Numbers in(2 * kThreads);
  Device<int> out(2 * kThreads);
  group_copy<<<1, kThreads>>>(in, out);
  expect(out, 2 * kThreads, [](int i) { return i ^ 7; });
}

__global__ void group_copy_prior(const int *in, int *out) {
  __shared__ int tile[2][kThreads];
  const auto block = cg::this_thread_block();
  cg::memcpy_async(block, tile[0], in, sizeof(int) * kThreads);
  cg::memcpy_async(block, tile[1], in + kThreads, sizeof(int) * kThreads);
  cg::wait_prior<1>(block);
  out[threadIdx.x] = tile[0][threadIdx.x ^ 3];
  cg::wait(block);
  out[kThreads + threadIdx.x] = tile[1][threadIdx.x ^ 3];
}
CASE(group_copy_prior) {
  Numbers in(2 * kThreads);
  Device<int> out(2 * kThreads);
  group_copy_prior<<<1, kThreads>>>(in, out);
  expect(out, 2 * kThreads, [](int i) { return i ^ 3; });
}

__global__ void tile_reduce(const int *in, int *out) {
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const int sum = cg::reduce(tile, in[threadIdx.x], cg::plus<int>());
  const int before = cg::exclusive_scan(tile, in[threadIdx.x]);
  out[threadIdx.x] = sum + before;
}
CASE(tile_reduce) {
  Numbers in(kThreads);
  Device<int> out(kThreads);
  tile_reduce<<<1, kThreads>>>(in, out);
  expect(out, kThreads, [](int i) {
    const int first = i / 16 * 16;
    int sum = 0, before = 0;
    for (int j = first; j < first + 16; ++j) {
      sum += j;
      before += j < i ? j : 0;
    }
    return sum + before;
  });
}

__global__ void coalesced(const int *in, int *out, int *count) {
  if (in[threadIdx.x] % 3 == 0) {
    const auto group = cg::coalesced_threads();
    int base = 0;
    if (group.thread_rank() == 0)
      base = atomicAdd(count, int(group.size()));
    out[group.shfl(base, 0) + group.thread_rank()] = in[threadIdx.x];
  }
}
CASE(coalesced) {
  Numbers in(kThreads);
  Device<int> out(kThreads), count(1);
  coalesced<<<1, kThreads>>>(in, out, count);
  expect(count, 1, [](int) { return 43; });
}

__global__ void grid_barrier_in_steps(int *data, int *out, int n) {
  const auto grid = cg::this_grid();
  for (int i = grid.thread_rank(); i < n; i += grid.size())
    data[i] = i * i;
  grid.sync();
  for (int i = grid.thread_rank(); i < n; i += grid.size())
    out[i] = data[n - 1 - i];
}
CASE(grid_barrier_in_steps) {
  int n = 1000;
  Device<int> data(n), out(n);
  int *from = data, *to = out;
  void *arguments[] = {&from, &to, &n};
  cudaLaunchCooperativeKernel(reinterpret_cast<void *>(grid_barrier_in_steps), 4, kThreads, arguments);
  expect(out, n, [](int i) { return (999 - i) * (999 - i); });
}

} // namespace
