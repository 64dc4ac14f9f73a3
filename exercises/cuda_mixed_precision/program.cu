// ladder emulate program.cu -- 6 100: a matrix of 6 rows and 100 columns of half times a vector, summed in
// float.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_fp16.h>

constexpr int kWarps = 4;

__device__ float sum_of_warp(float value) {
  for (int mask = 16; mask > 0; mask /= 2)
    value += __shfl_xor_sync(0xffffffff, value, mask);
  return value;
}

// y = a x, with a (rows, 2 pairs) and x (2 pairs) of half, two per half2, and y (rows) of float. One warp per
// row.
__global__ void multiply(const half2 *a, const half2 *x, float *y, int rows, int pairs) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= rows)
    return;
  a += row * pairs;
  float sum = 0.f;
  for (int j = lane; j < pairs; j += 32) {
    const float2 of_a = __half22float2(a[j]), of_x = __half22float2(x[j]);
    sum += of_a.x * of_x.x + of_a.y * of_x.y;
  }
  sum = sum_of_warp(sum);
  if (lane == 0)
    y[row] = sum;
}

int main(int argc, char **argv) {
  const int rows = argc > 2 ? std::atoi(argv[1]) : 6, cols = argc > 2 ? std::atoi(argv[2]) : 100;
  half *a, *x;
  float *y;
  cudaMallocManaged(&a, rows * cols * sizeof(half));
  cudaMallocManaged(&x, cols * sizeof(half));
  cudaMallocManaged(&y, rows * sizeof(float));
  for (int i = 0; i < rows * cols; i++)
    a[i] = __float2half(float(std::rand() % 100)); // whole numbers up to 2048 are exact in half
  for (int i = 0; i < cols; i++)
    x[i] = __float2half(float(std::rand() % 100));
  for (int row = 0; row < rows; row++)
    y[row] = NAN;
  const int blocks = (rows + kWarps - 1) / kWarps;
  multiply<<<blocks, kWarps * 32>>>((const half2 *)a, (const half2 *)x, y, rows, cols / 2);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int row = 0; row < rows; row++) {
    float wanted = 0.f; // of whole numbers below 2^24: exact
    for (int j = 0; j < cols; j++)
      wanted += __half2float(a[row * cols + j]) * __half2float(x[j]);
    if (y[row] != wanted) {
      const float off = std::fabs(y[row] - wanted) / wanted;
      std::printf("y[%d] is %.8g, should be %.8g, a relative error of %.0e\n", row, y[row], wanted, off);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(a);
  cudaFree(x);
  cudaFree(y);
}
