// Blocks that wait for each other: the first for the last, each for the one before it, and threads for a
// lock.
#include "check.h"

__global__ void first_waits_for_last(volatile int *flag, int *out) {
  if (blockIdx.x == gridDim.x - 1) {
    if (threadIdx.x == 0) {
      out[1] = 77;
      __threadfence();
      *flag = 1;
    }
  } else if (blockIdx.x == 0) {
    while (*flag == 0) {
    }
    __threadfence();
    if (threadIdx.x == 0)
      out[0] = out[1];
  }
}

__global__ void chain(int *turn, int *out) {
  if (threadIdx.x == 0) {
    while (atomicAdd(turn, 0) != int(blockIdx.x))
      __nanosleep(20);
    *out = *out * 3 + int(blockIdx.x);
    __threadfence();
    atomicExch(turn, int(blockIdx.x) + 1);
  }
}

// A lock that every thread of a warp wants: needs independent thread scheduling.
__global__ void locked(int *lock, int *count) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();
  *reinterpret_cast<volatile int *>(count) += 1;
  __threadfence();
  atomicExch(lock, 0);
}

int main() {
  int *data;
  CUDA(cudaMallocManaged(&data, 16 * sizeof(int)));
  first_waits_for_last<<<64, 32>>>(data, data + 1);
  CUDA(cudaDeviceSynchronize());
  CHECK(data[1] == 77);
  chain<<<20, 32>>>(data + 4, data + 5);
  CUDA(cudaDeviceSynchronize());
  int wanted = 0;
  for (int i = 0; i < 20; ++i)
    wanted = wanted * 3 + i;
  CHECK(data[5] == wanted);
  locked<<<3, 64>>>(data + 8, data + 9);
  CUDA(cudaDeviceSynchronize());
  CHECK(data[9] == 3 * 64);
}
