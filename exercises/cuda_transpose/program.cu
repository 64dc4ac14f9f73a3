// ladder emulate program.cu -- 100 70: transposes a matrix of 100 rows and 70 columns.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kTile = 32;

// out (cols, rows) is in (rows, cols) transposed. A block of 32 x 32 threads transposes a tile in shared
// memory. So a warp reads part of a row of `in` and writes part of a row of `out`: adjacent addresses twice.
__global__ void transpose(const float *in, float *out, int rows, int cols) {
  __shared__ float tile[kTile][kTile + 1];
  const int row = blockIdx.y * kTile + threadIdx.y, col = blockIdx.x * kTile + threadIdx.x;
  if (row < rows && col < cols)
    tile[threadIdx.y][threadIdx.x] = in[row * cols + col];
  __syncthreads();
  const int out_row = blockIdx.x * kTile + threadIdx.y, out_col = blockIdx.y * kTile + threadIdx.x;
  if (out_row < cols && out_col < rows)
    out[out_row * rows + out_col] = tile[threadIdx.x][threadIdx.y];
}

int main(int argc, char **argv) {
  const int rows = argc > 2 ? std::atoi(argv[1]) : 100, cols = argc > 2 ? std::atoi(argv[2]) : 70;
  float *in, *out;
  cudaMallocManaged(&in, rows * cols * sizeof(float));
  cudaMallocManaged(&out, rows * cols * sizeof(float));
  for (int i = 0; i < rows * cols; i++) {
    in[i] = float(i);
    out[i] = NAN; // elements that no thread writes stay NaN
  }
  const dim3 grid((cols + kTile - 1) / kTile, (rows + kTile - 1) / kTile), block(kTile, kTile);
  transpose<<<grid, block>>>(in, out, rows, cols);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int row = 0; row < rows; row++) {
    for (int col = 0; col < cols; col++) {
      const float is = out[col * rows + row], wanted = in[row * cols + col];
      if (is != wanted) {
        std::printf("out[%d][%d] is %g, should be in[%d][%d], %g\n", col, row, is, row, col, wanted);
        return 1;
      }
    }
  }
  std::printf("right\n");
  cudaFree(in);
  cudaFree(out);
}
