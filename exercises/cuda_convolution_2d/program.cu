// ladder emulate program.cu -- 20 40: a filter of 3 x 3 over an image of 20 rows and 40 columns.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kTile = 16, kPadded = kTile + 2;

// out[row][col] = sum over dy, dx in {-1, 0, 1} of filter[dy + 1][dx + 1] * in[row + dy][col + dx], with 0
// outside the image. A block of 16 x 16 threads loads its tile and the pixels around it: 18 x 18.
__global__ void convolve(const float *in, const float *filter, float *out, int rows, int cols) {
  __shared__ float tile[kPadded][kPadded];
  const int first_row = blockIdx.y * kTile - 1, first_col = blockIdx.x * kTile - 1;
  for (int t = threadIdx.y * kTile + threadIdx.x; t < kPadded * kPadded; t += kTile * kTile) {
    const int row = first_row + t / kPadded, col = first_col + t % kPadded;
    const bool inside = row >= 0 && row < rows && col >= 0 && col < cols;
    tile[t / kPadded][t % kPadded] = inside ? in[row * cols + col] : 0.f;
  }
  __syncthreads();
  float sum = 0.f;
  for (int y = 0; y < 3; y++)
    for (int x = 0; x < 3; x++)
      sum += filter[y * 3 + x] * tile[threadIdx.y + y][threadIdx.x + x];
  const int out_row = first_row + 1 + threadIdx.y, out_col = first_col + 1 + threadIdx.x;
  if (out_row < rows && out_col < cols)
    out[out_row * cols + out_col] = sum;
}

int main(int argc, char **argv) {
  const int rows = argc > 2 ? std::atoi(argv[1]) : 20, cols = argc > 2 ? std::atoi(argv[2]) : 40;
  float *in, *filter, *out;
  cudaMallocManaged(&in, rows * cols * sizeof(float));
  cudaMallocManaged(&filter, 9 * sizeof(float));
  cudaMallocManaged(&out, rows * cols * sizeof(float));
  for (int i = 0; i < rows * cols; i++) {
    in[i] = float(std::rand() % 100);
    out[i] = NAN; // pixels that no thread writes keep this
  }
  for (int i = 0; i < 9; i++)
    filter[i] = float(std::rand() % 9 - 4);
  const dim3 grid((cols + kTile - 1) / kTile, (rows + kTile - 1) / kTile), block(kTile, kTile);
  convolve<<<grid, block>>>(in, filter, out, rows, cols);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int row = 0; row < rows; row++) {
    for (int col = 0; col < cols; col++) {
      float wanted = 0.f; // of whole numbers: exact
      for (int y = 0; y < 3; y++)
        for (int x = 0; x < 3; x++)
          if (row + y > 0 && row + y <= rows && col + x > 0 && col + x <= cols)
            wanted += filter[y * 3 + x] * in[(row + y - 1) * cols + col + x - 1];
      if (out[row * cols + col] != wanted) {
        std::printf("out[%d][%d] is %g, should be %g\n", row, col, out[row * cols + col], wanted);
        return 1;
      }
    }
  }
  std::printf("right\n");
  cudaFree(in);
  cudaFree(filter);
  cudaFree(out);
}
