// ladder emulate program.cu -- 5: the sums of 5 rows of 32 elements, one warp per row.
#include <cstdio>
#include <cstdlib>

constexpr int kWarps = 4;

// sums[row] is the sum of row `row` of x (rows, 32). Lane i of a warp holds element i of its row. Lanes
// exchange registers: no shared memory, and no barrier.
__global__ void sum_rows(const int *x, int *sums, int rows) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= rows)
    return;
  int sum = x[row * 32 + lane];
  for (int mask = 16; mask > 0; mask /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, mask);
  sums[row * 32 + lane] = sum;
}

int main(int argc, char **argv) {
  const int rows = argc > 1 ? std::atoi(argv[1]) : 5;
  int *x, *sums;
  cudaMallocManaged(&x, rows * 32 * sizeof(int));
  cudaMallocManaged(&sums, rows * 32 * sizeof(int));
  for (int i = 0; i < rows * 32; i++) {
    x[i] = i * i % 101;
    sums[i] = -1;
  }
  sum_rows<<<(rows + kWarps - 1) / kWarps, kWarps * 32>>>(x, sums, rows);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int row = 0; row < rows; row++) {
    int wanted = 0;
    for (int i = 0; i < 32; i++)
      wanted += x[row * 32 + i];
    for (int lane = 0; lane < 32; lane++) {
      if (sums[row * 32 + lane] != wanted) {
        std::printf("row %d: lane %d has %d, should have %d\n", row, lane, sums[row * 32 + lane], wanted);
        return 1;
      }
    }
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(sums);
}
