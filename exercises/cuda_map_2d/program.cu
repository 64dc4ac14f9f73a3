// ladder emulate program.cu -- 12 20: the negative of an image of 12 rows and 20 columns, by one block.
#include <cstdio>
#include <cstdlib>

// out = 255 - in, for images (rows, cols). One block of rows x cols threads.
__global__ void negative(const int *in, int *out, int cols) {
  const int row = threadIdx.y, col = threadIdx.x;
  out[row * cols + col] = 255 - in[row * cols + col];
}

int main(int argc, char **argv) {
  const int rows = argc > 2 ? std::atoi(argv[1]) : 12, cols = argc > 2 ? std::atoi(argv[2]) : 20;
  int *in, *out;
  cudaMallocManaged(&in, rows * cols * sizeof(int));
  cudaMallocManaged(&out, rows * cols * sizeof(int));
  for (int i = 0; i < rows * cols; i++) {
    in[i] = std::rand() % 256;
    out[i] = -1; // pixels that no thread writes keep this
  }
  negative<<<1, dim3(cols, rows)>>>(in, out, cols);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int row = 0; row < rows; row++) {
    for (int col = 0; col < cols; col++) {
      const int i = row * cols + col;
      if (out[i] != 255 - in[i]) {
        std::printf("out[%d][%d] is %d, should be %d\n", row, col, out[i], 255 - in[i]);
        return 1;
      }
    }
  }
  std::printf("right\n");
  cudaFree(in);
  cudaFree(out);
}
