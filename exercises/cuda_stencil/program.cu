// ladder emulate program.cu -- 1000: sums of three neighbours, of 1000 elements.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 128;

// y[i] = x[i - 1] + x[i] + x[i + 1], with 0 beyond both ends. Three threads need each element of x. The
// block loads it from global memory once.
__global__ void sum_of_three(const float *x, float *y, int n) {
  __shared__ float x_smem[kThreads + 2]; // x[first - 1] to x[first + kThreads]
  const int first = blockIdx.x * kThreads;
  for (int t = threadIdx.x; t < kThreads + 2; t += kThreads) {
    const int i = first - 1 + t;
    x_smem[t] = i >= 0 && i < n ? x[i] : 0.f;
  }
  __syncthreads();
  const int i = first + threadIdx.x;
  if (i < n)
    y[i] = x_smem[threadIdx.x] + x_smem[threadIdx.x + 1] + x_smem[threadIdx.x + 2];
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 1000;
  float *x, *y;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&y, n * sizeof(float));
  for (int i = 0; i < n; i++) {
    x[i] = float(i % 10 + 1);
    y[i] = NAN; // elements that no thread writes stay NaN
  }
  sum_of_three<<<(n + kThreads - 1) / kThreads, kThreads>>>(x, y, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < n; i++) {
    const float wanted = (i > 0 ? x[i - 1] : 0.f) + x[i] + (i + 1 < n ? x[i + 1] : 0.f);
    if (y[i] != wanted) {
      std::printf("y[%d] is %g, should be %g\n", i, y[i], wanted);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(y);
}
