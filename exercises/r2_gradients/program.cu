// ladder emulate program.cu -- 4 3: the gradients of keys follow them round a ring of four ranks. A rank is a
// block.
#include <cstdio>
#include <cstdlib>
#include <utility>

constexpr int kMostRows = 32;

// One step of all ranks. keys and sums hold for each rank what is at it in this step: n keys, and a sum of
// gradients for each of them. Query i gives key j the gradient queries[i] * key for j <= i. A thread has one
// key, whose number is among its values. What next_keys and next_sums hold for a rank is at it in the next
// step.
__global__ void step(const int *queries, const int *keys, const int *sums, int *next_keys, int *next_sums,
                     int n) {
  const int rank = blockIdx.x, ranks = gridDim.x, here = rank * n + threadIdx.x;
  const int there = (rank + 1) % ranks * n + threadIdx.x, key = keys[here];
  int part = 0; // of this rank's queries
  for (int i = rank * n; i < rank * n + n; i++)
    part += key <= i ? queries[i] * key : 0;
  next_keys[there] = key;
  next_sums[there] = sums[here] + part;
}

int main(int argc, char **argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4, n = argc > 2 ? std::atoi(argv[2]) : 3,
            rows = ranks * n;
  if (n > kMostRows)
    return 1;
  int *queries, *keys, *next_keys, *sums, *next_sums;
  for (int **array : {&queries, &keys, &next_keys, &sums, &next_sums})
    cudaMallocManaged(array, rows * sizeof(int));
  for (int i = 0; i < rows; i++) {
    queries[i] = i * i % 7 + 1;
    keys[i] = i;
    sums[i] = next_sums[i] = 0;
  }
  for (int s = 0; s < ranks; s++) {
    step<<<ranks, n>>>(queries, keys, sums, next_keys, next_sums, n);
    if (const cudaError_t error = cudaDeviceSynchronize()) {
      std::printf("%s\n", cudaGetErrorString(error));
      return 1;
    }
    std::swap(keys, next_keys);
    std::swap(sums, next_sums);
  }
  for (int j = 0; j < rows; j++) {
    int wanted = 0;
    for (int i = j; i < rows; i++)
      wanted += queries[i] * j;
    if (sums[j] != wanted) {
      std::printf("rank %d, key %d: the gradient is %d, should be %d\n", j / n, j, sums[j], wanted);
      return 1;
    }
  }
  std::printf("right\n");
}
