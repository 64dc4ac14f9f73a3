// ladder emulate program.cu -- 20 50: the sums of each of 20 and each of 50 numbers.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kTile = 16;

// out[row][col] = a[row] + b[col], for out (rows, cols). Blocks of 16 x 16 threads.
__global__ void outer_sum(const float *a, const float *b, float *out, int rows, int cols) {
  const int row = blockIdx.y * kTile + threadIdx.y, col = blockIdx.x * kTile + threadIdx.x;
  if (row < rows && col < cols)
    out[row * cols + col] = a[row] + b[col];
}

int main(int argc, char **argv) {
  const int rows = argc > 2 ? std::atoi(argv[1]) : 20, cols = argc > 2 ? std::atoi(argv[2]) : 50;
  float *a, *b, *out;
  cudaMallocManaged(&a, rows * sizeof(float));
  cudaMallocManaged(&b, cols * sizeof(float));
  cudaMallocManaged(&out, rows * cols * sizeof(float));
  for (int row = 0; row < rows; row++)
    a[row] = float(std::rand() % 100);
  for (int col = 0; col < cols; col++)
    b[col] = float(std::rand() % 100) / 128.f;
  for (int i = 0; i < rows * cols; i++)
    out[i] = NAN; // entries that no thread writes keep this
  const dim3 grid((cols + kTile - 1) / kTile, (rows + kTile - 1) / kTile), block(kTile, kTile);
  outer_sum<<<grid, block>>>(a, b, out, rows, cols);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int row = 0; row < rows; row++) {
    for (int col = 0; col < cols; col++) {
      const float is = out[row * cols + col], wanted = a[row] + b[col];
      if (is != wanted) {
        std::printf("out[%d][%d] is %g, should be %g\n", row, col, is, wanted);
        return 1;
      }
    }
  }
  std::printf("right\n");
  cudaFree(a);
  cudaFree(b);
  cudaFree(out);
}
