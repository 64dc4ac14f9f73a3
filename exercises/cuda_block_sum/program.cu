// ladder emulate program.cu -- 1000: the dot product of two vectors of 1000 elements, by one block.
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 256;

// sum = a[0] b[0] + ... + a[n - 1] b[n - 1]. Each thread adds up every kThreads-th product, then the block
// adds up its threads' sums.
__global__ void dot(const int *a, const int *b, int *sum, int n) {
  __shared__ int part[kThreads];
  int own = 0;
  for (int i = threadIdx.x; i < n; i += kThreads)
    own += a[i] * b[i];
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
  int *a, *b, *sum, wanted = 0;
  cudaMallocManaged(&a, n * sizeof(int));
  cudaMallocManaged(&b, n * sizeof(int));
  cudaMallocManaged(&sum, sizeof(int));
  *sum = -1;
  for (int i = 0; i < n; i++) {
    a[i] = std::rand() % 100 + 1;
    b[i] = std::rand() % 100 + 1;
    wanted += a[i] * b[i];
  }
  dot<<<1, kThreads>>>(a, b, sum, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  if (*sum != wanted) {
    std::printf("the sum is %d, should be %d\n", *sum, wanted);
    return 1;
  }
  std::printf("right\n");
  cudaFree(a);
  cudaFree(b);
  cudaFree(sum);
}
