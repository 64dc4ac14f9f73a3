// Cooperative groups: a barrier of the grid, groups of the block and of a warp.
#include "check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void ring(int *data, int rounds) {
  cg::grid_group grid = cg::this_grid();
  const unsigned long long rank = grid.thread_rank(), size = grid.size();
  for (int round = 0; round < rounds; ++round) {
    const int next = data[(rank + 1) % size];
    grid.sync();
    data[rank] = next;
    grid.sync();
  }
}

__global__ void groups(int *out) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
  const int rank = int(block.thread_rank());
  const int sum = cg::reduce(tile, rank, cg::plus<int>());
  const int from_first = tile.shfl(rank, 0);
  if (rank % 3 == 0) {
    cg::coalesced_group together = cg::coalesced_threads();
    out[rank + 64] = int(together.size());
  } else {
    out[rank + 64] = 0;
  }
  block.sync();
  out[rank] = sum * 1000 + from_first;
}

// A group of several warps keeps its barrier in shared memory that the driver reserves.
__global__ void wide_groups(int *out) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<64> tile = cg::tiled_partition<64>(block);
  const int rank = int(block.thread_rank());
  const int sum = cg::reduce(tile, rank, cg::plus<int>());
  out[rank] = sum;
  tile.sync();
}

int main() {
  int device_can = 0;
  CUDA(cudaDeviceGetAttribute(&device_can, cudaDevAttrCooperativeLaunch, 0));
  CHECK(device_can == 1);
  const int blocks = 6, threads = 64, n = blocks * threads;
  int *data;
  CUDA(cudaMallocManaged(&data, n * sizeof(int)));
  for (int i = 0; i < n; ++i)
    data[i] = i;
  int rounds = 5;
  void *arguments[] = {&data, &rounds};
  CUDA(cudaLaunchCooperativeKernel(ring, blocks, threads, arguments, 0, nullptr));
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < n; ++i)
    CHECK(data[i] == (i + rounds) % n);
  CHECK_CODE(cudaLaunchCooperativeKernel(ring, 100000, threads, arguments, 0, nullptr),
             cudaErrorCooperativeLaunchTooLarge);

  groups<<<1, 64>>>(data);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 64; ++i) {
    const int first = i / 8 * 8;
    CHECK(data[i] == (first * 8 + 28) * 1000 + first);
    const int warp_first = i / 32 * 32;
    int together = 0;
    for (int j = warp_first; j < warp_first + 32; ++j)
      together += j % 3 == 0;
    CHECK(data[i + 64] == (i % 3 == 0 ? together : 0));
  }

  wide_groups<<<1, 128>>>(data);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 128; ++i)
    CHECK(data[i] == (i < 64 ? 63 * 32 : 63 * 32 + 64 * 64));
}
