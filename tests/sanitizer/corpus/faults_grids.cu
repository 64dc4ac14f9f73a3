// Planted faults between the blocks of a grid, and between kernels and what runs beside them. Marked as in
// faults_waits.cu.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "corpus.h"

#include <cooperative_groups.h>

namespace {

namespace cg = cooperative_groups;

// --- barriers of the grid ----------------------------------------------------------------------------------

template <typename... T> void launch_grid(void (*kernel)(T...), T... arguments) {
  void *pointers[] = {&arguments...};
  cudaLaunchCooperativeKernel(reinterpret_cast<void *>(kernel), 4, 64, pointers, 0, nullptr);
}

__global__ void second_grid_sync_is_missing(int *a, int *b, int *c) {
  const auto grid = cg::this_grid();
  const unsigned i = grid.thread_rank(), n = grid.size();
  a[i] = int(i);
  grid.sync();
  b[i] = a[(i + 64) % n] + 1;
  c[i] = b[(i + 64) % n]; // fault(second_grid_sync_is_missing): race between blocks
  grid.sync();
  a[i] = c[(i + 64) % n];
}
CASE(second_grid_sync_is_missing) {
  Device<int> a(256), b(256), c(256);
  launch_grid<int *, int *, int *>(second_grid_sync_is_missing, a, b, c);
}

__global__ void rounds_without_the_second_grid_sync(int *now, int *next, int rounds) {
  const auto grid = cg::this_grid();
  const unsigned i = grid.thread_rank(), n = grid.size();
  for (int round = 0; round < rounds; ++round) {
    next[i] = now[(i + 1) % n] + 1; // fault(rounds_without_the_second_grid_sync): race between blocks
    grid.sync();
    now[i] = next[i];
  }
}
CASE(rounds_without_the_second_grid_sync) {
  Device<int> now(256), next(256);
  launch_grid<int *, int *, int>(rounds_without_the_second_grid_sync, now, next, 3);
}

__device__ void wait_for_all_blocks(unsigned *arrived, unsigned round) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < round * gridDim.x) {
    }
    __threadfence();
  }
  __syncthreads();
}
__global__ void second_round_of_a_counter_is_missing(int *a, int *b, unsigned *arrived) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  a[i] = int(i);
  wait_for_all_blocks(arrived, 1);
  b[i] = a[(i + 64) % n] + 1;
  a[i] = b[i]; // fault(second_round_of_a_counter_is_missing): race between blocks
  wait_for_all_blocks(arrived, 2);
  b[i] = a[(i + 64) % n];
}
CASE(second_round_of_a_counter_is_missing) {
  Device<int> a(256), b(256);
  Device<unsigned> arrived(1);
  second_round_of_a_counter_is_missing<<<4, 64>>>(a, b, arrived);
}

__global__ void only_thread_0_has_waited(int *data, int *flag, int *out) {
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
    out[threadIdx.x] = data[threadIdx.x]; // fault(only_thread_0_has_waited): race between blocks
  }
}
CASE(only_thread_0_has_waited) {
  Device<int> data(64), flag(1), out(64);
  only_thread_0_has_waited<<<2, 64>>>(data, flag, out);
}

/// Block 0's own atomics come after its store; those of the others may come before it.
__global__ void counter_set_beside_other_blocks(int *counter) {
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0)
      *counter = 5; // fault(counter_set_beside_other_blocks): race between blocks
    __syncthreads();
  }
  atomicAdd(counter, 1);
}
CASE(counter_set_beside_other_blocks) {
  Device<int> counter(1);
  counter_set_beside_other_blocks<<<4, 64>>>(counter);
}

// --- variables of the module -------------------------------------------------------------------------------

__device__ int factors[64];
__constant__ int weights[64];

__global__ void by_factors(int *out) { out[threadIdx.x] = factors[threadIdx.x]; }
__global__ void by_weights(int *out) { out[threadIdx.x] = weights[threadIdx.x]; }

CASE(variable_copied_beside_its_kernel) {
  int *host;
  cudaMallocHost(&host, sizeof factors);
  for (int i = 0; i < 64; ++i)
    host[i] = i;
  cudaStream_t a, b;
  cudaStreamCreate(&a);
  cudaStreamCreate(&b);
  Device<int> out(64);
  cudaDeviceSynchronize();
  by_factors<<<1, 64, 0, a>>>(out);
  cudaMemcpyToSymbolAsync(factors, host, sizeof factors, 0, cudaMemcpyHostToDevice, b); // fault(variable_copied_beside_its_kernel): race between streams
  cudaDeviceSynchronize();
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
  cudaFreeHost(host);
}
CASE(constant_copied_beside_its_kernel) {
  int *host;
  cudaMallocHost(&host, sizeof weights);
  for (int i = 0; i < 64; ++i)
    host[i] = i;
  cudaStream_t a, b;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  Device<int> out(64);
  cudaDeviceSynchronize();
  by_weights<<<1, 64, 0, a>>>(out);
  cudaMemcpyToSymbolAsync(weights, host, sizeof weights, 0, cudaMemcpyHostToDevice, b); // fault(constant_copied_beside_its_kernel): race between streams
  cudaDeviceSynchronize();
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
  cudaFreeHost(host);
}

__global__ void add_for_all(int *sum) { atomicAdd_system(sum, int(threadIdx.x)); }
CASE(sum_read_while_it_is_added_to) {
  int *sum;
  cudaMallocManaged(&sum, sizeof *sum);
  *sum = 0;
  add_for_all<<<1, 64>>>(sum);
  printf("%d\n", *sum); // fault(sum_read_while_it_is_added_to): race with the host
  cudaDeviceSynchronize();
  cudaFree(sum);
}

} // namespace
