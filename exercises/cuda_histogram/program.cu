// ladder emulate program.cu -- 1000: how often each of 64 values occurs among 1000.
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 128, kValues = 64;

// counts[v] becomes the number of i with x[i] = v. Each block counts in shared memory, where atomics are
// cheap, and adds its counts to those in global memory once.
__global__ void count(const int *x, int *counts, int n) {
  __shared__ int own[kValues];
  for (int v = threadIdx.x; v < kValues; v += kThreads)
    own[v] = 0;
  __syncthreads();
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads)
    atomicAdd(&own[x[i]], 1);
  __syncthreads();
  for (int v = threadIdx.x; v < kValues; v += kThreads)
    atomicAdd(&counts[v], own[v]);
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 1000;
  int *x, *counts, wanted[kValues] = {};
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&counts, kValues * sizeof(int));
  for (int v = 0; v < kValues; v++)
    counts[v] = 0;
  for (int i = 0; i < n; i++) {
    x[i] = i * i % kValues;
    wanted[x[i]]++;
  }
  count<<<3, kThreads>>>(x, counts, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int v = 0; v < kValues; v++) {
    if (counts[v] != wanted[v]) {
      std::printf("%d was counted %d times, and occurs %d times\n", v, counts[v], wanted[v]);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(counts);
}
