// Memory of a thread's whose size it decides: by lane, in a loop, in functions that call each other.
#include "check.h"

#include <vector>

__device__ __noinline__ int sum_of_squares(int n) {
  int *const squares = static_cast<int *>(alloca(n * sizeof(int)));
  for (int i = 0; i < n; ++i)
    squares[i] = i * i;
  int sum = 0;
  for (int i = 0; i < n; ++i)
    sum += squares[i];
  return sum;
}

/// Each call keeps memory of its own while the next ones run.
__device__ __noinline__ int nested(int n) {
  int *const own = static_cast<int *>(alloca(n * sizeof(int)));
  for (int i = 0; i < n; ++i)
    own[i] = n + i;
  const int below = n > 1 ? nested(n - 1) : 0;
  const int more = sum_of_squares(n);
  int sum = below + more;
  for (int i = 0; i < n; ++i)
    sum += own[i] - i;
  return sum;
}

__global__ void stacks(int *out) {
  const int i = threadIdx.x;
  int sum = sum_of_squares(1 + i % 7);
  if (i % 3 == 0) {
    int *const two = static_cast<int *>(alloca((i + 1) * sizeof(int)));
    two[i] = i;
    sum += nested(1 + i % 5);
    sum += two[i];
  }
  out[i] = sum;
}

__global__ void endless(int *out) {
  for (int i = 0; i < 1000; ++i) {
    volatile int *const more = static_cast<int *>(alloca(1024 + 4 * i));
    more[i % 256] = i;
    *out += more[i % 256];
  }
}

int squares(int n) { return n == 0 ? 0 : (n - 1) * (n - 1) + squares(n - 1); }
int nested_sum(int n) { return n == 0 ? 0 : n * n + squares(n) + nested_sum(n - 1); }

int main(int count, char **) {
  int *gmem;
  CUDA(cudaMallocManaged(&gmem, 64 * sizeof(int)));
  if (count > 1) {
    endless<<<1, 32>>>(gmem);
    CHECK_CODE(cudaDeviceSynchronize(), cudaErrorHardwareStackError);
    return 0;
  }
  stacks<<<1, 64>>>(gmem);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 64; ++i)
    CHECK(gmem[i] == squares(1 + i % 7) + (i % 3 == 0 ? nested_sum(1 + i % 5) + i : 0));
}
