// ladder emulate program.cu -- 300: the difference of each of 300 elements from the one before it in its
// block.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 128;

// y[i] = x[i] - x[i - 1], and y[i] = x[i] for the first element of each block. Each element is read from
// global memory once: the neighbour's value comes from shared memory.
__global__ void difference(const float *x, float *y, int n) {
  __shared__ float tile[kThreads];
  const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
  const float own = i < n ? x[i] : 0.f;
  tile[t] = own;
  __syncthreads();
  if (i < n)
    y[i] = t > 0 ? own - tile[t - 1] : own;
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 300;
  float *x, *y;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&y, n * sizeof(float));
  for (int i = 0; i < n; i++) {
    x[i] = float(std::rand() % 1000);
    y[i] = NAN; // elements that no thread writes keep this
  }
  difference<<<(n + kThreads - 1) / kThreads, kThreads>>>(x, y, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < n; i++) {
    const float wanted = i % kThreads == 0 ? x[i] : x[i] - x[i - 1];
    if (y[i] != wanted) {
      std::printf("y[%d] is %g, should be %g\n", i, y[i], wanted);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(y);
}
