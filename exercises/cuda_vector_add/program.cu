// ladder emulate program.cu -- 1000: adds two vectors of 1000 elements.
#include <cmath>
#include <cstdio>
#include <cstdlib>

// c = a + b, n elements each. One thread adds one element.
__global__ void add(const float *a, const float *b, float *c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    c[i] = a[i] + b[i];
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 1000;
  float *a, *b, *c;
  cudaMallocManaged(&a, n * sizeof(float));
  cudaMallocManaged(&b, n * sizeof(float));
  cudaMallocManaged(&c, n * sizeof(float));
  for (int i = 0; i < n; i++) {
    a[i] = float(i);
    b[i] = 0.5f;
    c[i] = NAN; // elements that no thread writes stay NaN
  }
  add<<<(n + 255) / 256, 256>>>(a, b, c, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < n; i++) {
    if (c[i] != a[i] + b[i]) {
      std::printf("c[%d] is %g, should be %g\n", i, c[i], a[i] + b[i]);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(a);
  cudaFree(b);
  cudaFree(c);
}
