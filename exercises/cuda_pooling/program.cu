// ladder emulate program.cu -- 100: the largest of each 4 neighbouring elements among 100, by one block.
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 256, kWindow = 4;

// y[i] = max(x[i - 3], x[i - 2], x[i - 1], x[i]) for n <= 256; near the beginning of those that exist.
__global__ void pool(const int *x, int *y, int n) {
  __shared__ int tile[kThreads];
  const int i = threadIdx.x;
  if (i < n)
    tile[i] = x[i];
  __syncthreads();
  if (i < n) {
    int most = tile[i];
    for (int back = 1; back < kWindow && back <= i; back++)
      most = max(most, tile[i - back]);
    y[i] = most;
  }
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 100;
  int *x, *y;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&y, n * sizeof(int));
  for (int i = 0; i < n; i++) {
    x[i] = std::rand() % 1000 - 500;
    y[i] = 9999; // elements that no thread writes keep this
  }
  x[0] = 700; // the largest of all: windows near the beginning show whether it counts
  pool<<<1, kThreads>>>(x, y, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < n; i++) {
    const int begin = i > kWindow - 1 ? i - kWindow + 1 : 0;
    int wanted = x[i];
    for (int j = begin; j < i; j++)
      wanted = wanted > x[j] ? wanted : x[j];
    if (y[i] != wanted) {
      std::printf("y[%d] is %d, should be %d, the largest of x[%d] to x[%d]\n", i, y[i], wanted, begin, i);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(y);
}
