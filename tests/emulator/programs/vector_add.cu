// c = a + b, with a size from the command line.
#include "check.h"

#include <vector>

__global__ void vector_add(const float *a, const float *b, float *c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    c[i] = a[i] + b[i];
}

int main(int count, char **words) {
  const int n = count > 1 ? std::atoi(words[1]) : 1000;
  std::vector<float> a(n), b(n), c(n, -1);
  for (int i = 0; i < n; ++i) {
    a[i] = float(i);
    b[i] = 0.5f * float(i);
  }
  float *a_gmem, *b_gmem, *c_gmem;
  const size_t bytes = n * sizeof(float);
  CUDA(cudaMalloc(&a_gmem, bytes));
  CUDA(cudaMalloc(&b_gmem, bytes));
  CUDA(cudaMalloc(&c_gmem, bytes));
  CUDA(cudaMemcpy(a_gmem, a.data(), bytes, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(b_gmem, b.data(), bytes, cudaMemcpyHostToDevice));
  vector_add<<<(n + 255) / 256, 256>>>(a_gmem, b_gmem, c_gmem, n);
  CUDA(cudaGetLastError());
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(c.data(), c_gmem, bytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i)
    CHECK(c[i] == 1.5f * float(i));
  CUDA(cudaFree(a_gmem));
  CUDA(cudaFree(b_gmem));
  CUDA(cudaFree(c_gmem));
}
