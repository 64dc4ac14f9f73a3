// ladder emulate program.cu -- 30 100: the sums of the columns of a matrix of 30 rows and 100 columns.
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 64;

// sums[col] = x[0][col] + ... + x[rows - 1][col], for x (rows, cols).
__global__ void sum_columns(const int *x, int *sums, int rows, int cols) {
  const int col = blockIdx.x * kThreads + threadIdx.x;
  if (col < cols) {
    int sum = 0;
    for (int row = 0; row < rows; row++)
      sum += x[row * cols + col];
    sums[col] = sum;
  }
}

int main(int argc, char **argv) {
  const int rows = argc > 2 ? std::atoi(argv[1]) : 30, cols = argc > 2 ? std::atoi(argv[2]) : 100;
  int *x, *sums;
  cudaMallocManaged(&x, rows * cols * sizeof(int));
  cudaMallocManaged(&sums, cols * sizeof(int));
  for (int i = 0; i < rows * cols; i++)
    x[i] = std::rand() % 100;
  for (int col = 0; col < cols; col++)
    sums[col] = -1; // elements that no thread writes keep this
  sum_columns<<<(cols + kThreads - 1) / kThreads, kThreads>>>(x, sums, rows, cols);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int col = 0; col < cols; col++) {
    int wanted = 0;
    for (int row = 0; row < rows; row++)
      wanted += x[row * cols + col];
    if (sums[col] != wanted) {
      int of_row = 0;
      for (int other = 0; col < rows && other < cols; other++)
        of_row += x[col * cols + other];
      std::printf("sums[%d] is %d%s, should be %d\n", col, sums[col],
                  sums[col] == of_row ? ", the sum of a row" : "", wanted);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(sums);
}
