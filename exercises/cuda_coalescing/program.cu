// ladder emulate program.cu -- 3000: twice each of 3000 elements, eight per thread.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 128, kEach = 8;

// y[i] = 2 x[i]. A block does kThreads * kEach elements, a thread kEach of them.
__global__ void twice(const float *x, float *y, int n) {
  const int first = blockIdx.x * kThreads * kEach;
  for (int e = 0; e < kEach; e++) {
    const int i = first + e * kThreads + threadIdx.x;
    if (i < n)
      y[i] = 2.f * x[i];
  }
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 3000;
  float *x, *y;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&y, n * sizeof(float));
  for (int i = 0; i < n; i++) {
    x[i] = float(std::rand() % 1000);
    y[i] = NAN; // elements that no thread writes keep this
  }
  const int each_block = kThreads * kEach;
  twice<<<(n + each_block - 1) / each_block, kThreads>>>(x, y, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < n; i++) {
    if (y[i] != 2.f * x[i]) {
      std::printf("y[%d] is %g, should be %g\n", i, y[i], 2.f * x[i]);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(y);
}
