// ladder emulate program.cu -- 100: 2 x + 1 for each of 100 elements, by one block.
#include <cstdio>
#include <cstdlib>

// y[i] = 2 x[i] + 1. One block with as many threads as there are elements.
__global__ void map(const int *x, int *y) {
  const int i = threadIdx.x;
  y[i] = 2 * x[i] + 1;
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 100;
  int *x, *y;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&y, n * sizeof(int));
  for (int i = 0; i < n; i++) {
    x[i] = std::rand() % 1000;
    y[i] = -1; // elements that no thread writes keep this
  }
  map<<<1, n>>>(x, y);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < n; i++) {
    if (y[i] != 2 * x[i] + 1) {
      std::printf("y[%d] is %d, should be %d\n", i, y[i], 2 * x[i] + 1);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(y);
}
