// ladder emulate program.cu -- 4 3: four ranks share eight chunks of three rows under a causal mask. A rank
// is a block.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

// Which of the 2 * ranks chunks of the sequence a rank has: which is 0 for its first one, 1 for its second
// one.
__host__ __device__ int chunk_of(int rank, int ranks, int which) {
  return which == 0 ? rank : 2 * ranks - 1 - rank;
}

// Each rank adds up, for each row i of its two chunks, the values of rows j <= i, and counts how many it has
// added.
__global__ void add_up(const int *values, int *sums, int *added, int n) {
  const int rank = blockIdx.x, ranks = gridDim.x;
  for (int which = 0; which < 2; which++) {
    const int row = chunk_of(rank, ranks, which) * n + threadIdx.x;
    if (row < 0 || row >= 2 * ranks * n)
      continue;
    for (int j = 0; j <= row; j++)
      sums[row] += values[j];
    atomicAdd(&added[rank], row + 1);
  }
}

int main(int argc, char **argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4, n = argc > 2 ? std::atoi(argv[2]) : 3;
  const int rows = 2 * ranks * n;
  int *values, *sums, *added;
  cudaMallocManaged(&values, rows * sizeof(int));
  cudaMallocManaged(&sums, rows * sizeof(int));
  cudaMallocManaged(&added, ranks * sizeof(int));
  std::vector<int> owners(2 * ranks);
  for (int r = 0; r < ranks; r++) {
    added[r] = 0;
    for (int which = 0; which < 2; which++) {
      const int chunk = chunk_of(r, ranks, which);
      if (chunk < 0 || chunk >= 2 * ranks) {
        std::printf("rank %d has chunk %d; there are chunks 0 to %d\n", r, chunk, 2 * ranks - 1);
        return 1;
      }
      owners[chunk]++;
    }
    if (chunk_of(r, ranks, 0) >= chunk_of(r, ranks, 1)) {
      std::printf("rank %d has its late chunk first: its rows must be in their order\n", r);
      return 1;
    }
  }
  for (int chunk = 0; chunk < 2 * ranks; chunk++)
    if (owners[chunk] != 1) {
      std::printf("chunk %d is at %d ranks, should be at one\n", chunk, owners[chunk]);
      return 1;
    }
  for (int i = 0; i < rows; i++) {
    values[i] = i * i % 13 + 1;
    sums[i] = 0;
  }
  add_up<<<ranks, n>>>(values, sums, added, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0, wanted = 0; i < rows; i++) {
    wanted += values[i];
    if (sums[i] != wanted) {
      std::printf("sums[%d] is %d, should be %d\n", i, sums[i], wanted);
      return 1;
    }
  }
  const auto [least, most] = std::minmax_element(added, added + ranks);
  if (*least != *most) {
    std::printf("rank %d adds %d values and rank %d adds %d: all wait for the slowest\n", int(most - added),
                *most, int(least - added), *least);
    return 1;
  }
  std::printf("right\n");
}
