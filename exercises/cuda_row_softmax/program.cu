// ladder emulate program.cu -- 6 100: the softmax of each of 6 rows of 100 elements.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kWarps = 4;

__device__ float max_of_warp(float value) {
  for (int mask = 16; mask > 0; mask /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, mask));
  return value;
}

__device__ float sum_of_warp(float value) {
  for (int mask = 16; mask > 0; mask /= 2)
    value += __shfl_xor_sync(0xffffffff, value, mask);
  return value;
}

// p[j] = exp(s[j]) / sum over i of exp(s[i]), for each row of s (rows, cols). One warp per row.
__global__ void softmax(const float *s, float *p, int rows, int cols) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= rows)
    return;
  s += row * cols;
  p += row * cols;
  float m = -INFINITY, l = 0.f;
  for (int j = lane; j < cols; j += 32)
    m = fmaxf(m, s[j]);
  m = max_of_warp(m);
  for (int j = lane; j < cols; j += 32)
    l += expf(s[j] - m);
  l = sum_of_warp(l);
  for (int j = lane; j < cols; j += 32)
    p[j] = expf(s[j] - m) / l;
}

int main(int argc, char **argv) {
  const int rows = argc > 2 ? std::atoi(argv[1]) : 6, cols = argc > 2 ? std::atoi(argv[2]) : 100;
  float *s, *p;
  cudaMallocManaged(&s, rows * cols * sizeof(float));
  cudaMallocManaged(&p, rows * cols * sizeof(float));
  for (int i = 0; i < rows * cols; i++) {
    s[i] = float(i * i % 97) * (i / cols % 2 ? 3.f : -0.1f); // large values, and negative ones
    p[i] = NAN;
  }
  if (cols > 32)
    s[(rows - 1) * cols + 32] = 500.f; // exp of it overflows unless the maximum has seen it
  softmax<<<(rows + kWarps - 1) / kWarps, kWarps * 32>>>(s, p, rows, cols);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int row = 0; row < rows; row++) {
    double largest = -INFINITY, sum = 0.;
    for (int j = 0; j < cols; j++)
      largest = fmax(largest, s[row * cols + j]);
    for (int j = 0; j < cols; j++)
      sum += exp(s[row * cols + j] - largest);
    for (int j = 0; j < cols; j++) {
      const double wanted = exp(s[row * cols + j] - largest) / sum;
      if (!(fabs(p[row * cols + j] - wanted) < 1e-6)) {
        std::printf("row %d: p[%d] is %.7g, should be %.7g, with m = %.7g and l = %.7g\n", row, j,
                    p[row * cols + j], wanted, largest, sum);
        return 1;
      }
    }
  }
  std::printf("right\n");
  cudaFree(s);
  cudaFree(p);
}
