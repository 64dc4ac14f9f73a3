// Loops and branches that differ from lane to lane, a switch, early returns, recursion, function pointers.
#include "check.h"

#include <vector>

__host__ __device__ int collatz(unsigned n) {
  int steps = 0;
  while (n != 1) {
    n = n % 2 ? 3 * n + 1 : n / 2;
    ++steps;
  }
  return steps;
}

__host__ __device__ int choose(int i) {
  switch (i % 7) {
  case 0:
    return 3 * i;
  case 1:
    return i - 5;
  case 2:
    if (i % 4 == 0)
      return 1;
    [[fallthrough]];
  case 3:
    return i * i;
  case 4:
    for (int j = 0;; ++j)
      if (j * j > i)
        return j;
  case 5:
    return -i;
  default:
    return 0;
  }
}

__host__ __device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

using Function = int (*)(int);
__host__ __device__ __noinline__ int twice(int i) { return 2 * i; }
__host__ __device__ __noinline__ int square(int i) { return i * i; }
__device__ Function table[2] = {twice, square};

__global__ void diverge(int *steps, int *chosen, int *recursive, int *pointed, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  steps[i] = collatz(i + 1);
  chosen[i] = choose(i);
  recursive[i] = fibonacci(i % 11);
  pointed[i] = table[i % 3 == 0](i);
  // All lanes that are left meet here.
  const unsigned here = __activemask();
  pointed[i] += __popc(__ballot_sync(here, i % 2 == 0)) * 0;
}

int main() {
  const int n = 333;
  int *gmem;
  CUDA(cudaMalloc(&gmem, 4 * n * sizeof(int)));
  diverge<<<3, 128>>>(gmem, gmem + n, gmem + 2 * n, gmem + 3 * n, n);
  CUDA(cudaDeviceSynchronize());
  std::vector<int> out(4 * n);
  CUDA(cudaMemcpy(out.data(), gmem, 4 * n * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) {
    CHECK(out[i] == collatz(i + 1));
    CHECK(out[n + i] == choose(i));
    CHECK(out[2 * n + i] == fibonacci(i % 11));
    CHECK(out[3 * n + i] == (i % 3 == 0 ? i * i : 2 * i));
  }
}
