// ladder emulate program.cu -- 4 3: four ranks with three keys each, in a ring. A rank is a block here.
#include <cstdio>
#include <cstdlib>
#include <utility>

constexpr int kMostRows = 32;

// One step of all ranks. here holds for each rank the n values of the keys that are at it in this step. Rank
// r has queries r * n .. r * n + n - 1, a thread each; query i adds up the values of keys j <= i. Then the
// keys go on to the next rank.
__global__ void step(const int *here, int *next, int *sums, int step, int n) {
  const int rank = blockIdx.x, ranks = gridDim.x, query = rank * n + threadIdx.x;
  const int source = (rank - step + ranks) % ranks;
  for (int j = 0; j < n; j++)
    if (source * n + j <= query)
      sums[query] += here[rank * n + j];
  next[(rank + 1) % ranks * n + threadIdx.x] = here[rank * n + threadIdx.x];
}

int main(int argc, char **argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4, n = argc > 2 ? std::atoi(argv[2]) : 3,
            rows = ranks * n;
  if (n > kMostRows)
    return 1;
  int *here, *next, *sums;
  cudaMallocManaged(&here, rows * sizeof(int));
  cudaMallocManaged(&next, rows * sizeof(int));
  cudaMallocManaged(&sums, rows * sizeof(int));
  for (int i = 0; i < rows; i++) {
    here[i] = i * i % 13 + 1;
    sums[i] = 0;
  }
  for (int s = 0; s < ranks; s++) {
    step<<<ranks, n>>>(here, next, sums, s, n);
    if (const cudaError_t error = cudaDeviceSynchronize()) {
      std::printf("%s\n", cudaGetErrorString(error));
      return 1;
    }
    std::swap(here, next);
  }
  for (int i = 0, wanted = 0; i < rows; i++) {
    wanted += i * i % 13 + 1;
    if (sums[i] != wanted) {
      std::printf("rank %d, query %d: the sum is %d, should be %d\n", i / n, i, sums[i], wanted);
      return 1;
    }
  }
  std::printf("right\n");
}
