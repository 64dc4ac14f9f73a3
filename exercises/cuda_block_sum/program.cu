// ladder emulate program.cu -- 1000: the sum of 1000 elements, by one block.
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 256;

// sum = x[0] + ... + x[n - 1]. Each thread adds up every kThreads-th element, then the block its threads'
// sums.
__global__ void add_up(const int *x, int *sum, int n) {
  __shared__ int part[kThreads];
  int own = 0;
  for (int i = threadIdx.x; i < n; i += kThreads)
    own += x[i];
  part[threadIdx.x] = own;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    *sum = part[0];
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 1000;
  int *x, *sum, wanted = 0;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&sum, sizeof(int));
  *sum = -1;
  for (int i = 0; i < n; i++) {
    x[i] = i % 11 + 1;
    wanted += x[i];
  }
  add_up<<<1, kThreads>>>(x, sum, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  if (*sum != wanted) {
    std::printf("the sum is %d, should be %d\n", *sum, wanted);
    return 1;
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(sum);
}
