// As the occupancy calculator has it for the GPU that is named: blocks by threads, by shared memory, by their
// number.
#include "check.h"

#include <algorithm>

__global__ void kernel(int *out) {
  extern __shared__ int data[];
  out[threadIdx.x] = data[threadIdx.x];
}

__global__ void without_shared_memory(unsigned *out) { out[threadIdx.x] = threadIdx.x * 3; }

int blocks(int threads, size_t shared_bytes) {
  int count = -1;
  CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, threads, shared_bytes));
  return count;
}

int main() {
  cudaDeviceProp p;
  CUDA(cudaGetDeviceProperties(&p, 0));
  std::printf("%s %d.%d, %d multiprocessors\n", p.name, p.major, p.minor, p.multiProcessorCount);
  CHECK(blocks(1024, 0) == p.maxThreadsPerMultiProcessor / 1024);
  CHECK(blocks(32, 0) == p.maxBlocksPerMultiProcessor);
  CHECK(blocks(33, 0) == std::min(p.maxBlocksPerMultiProcessor, p.maxThreadsPerMultiProcessor / 64));
  CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            int(p.sharedMemPerBlockOptin)));
  CHECK(blocks(128, p.sharedMemPerBlockOptin) == 1);
  CHECK(blocks(128, 20 * 1024) ==
        int(p.sharedMemPerMultiprocessor / (20 * 1024 + p.reservedSharedMemPerBlock)));
  CHECK(blocks(2048, 0) == 0);
  int grid = 0, block = 0;
  CUDA(cudaOccupancyMaxPotentialBlockSize(&grid, &block, kernel, 0, 0));
  CHECK(grid * block == p.multiProcessorCount * p.maxThreadsPerMultiProcessor);
  size_t available = 0;
  CUDA(cudaOccupancyAvailableDynamicSMemPerBlock(&available, kernel, 2, 128));
  CHECK(blocks(128, available) == 2);

  // Where a block reserves no shared memory either, it takes none at all.
  unsigned *out = nullptr, last = 0;
  CUDA(cudaMalloc(&out, 32 * sizeof(unsigned)));
  without_shared_memory<<<1, 32>>>(out);
  CUDA(cudaMemcpy(&last, out + 31, sizeof last, cudaMemcpyDeviceToHost));
  CHECK(last == 93);
  CUDA(cudaFree(out));
}
