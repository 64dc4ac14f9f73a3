// ladder emulate program.cu -- 4 10: what each of four ranks sends in a ring, with 10 rows among them. A rank
// is a block here.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

constexpr int kMostRanks = 16;

// The bytes that a rank sends until all ranks have had all keys. Rank r has lengths[r] rows, of row_bytes
// each for K and V together.
int bytes_sent(int rank, int ranks, const std::vector<int> &lengths, int row_bytes) {
  int rows = 0;
  for (int source = 0; source < ranks; source++)
    if (source != (rank + 1) % ranks)
      rows += lengths[source];
  return rows * row_bytes;
}

// One step of the ring: sources says whose keys are at each rank, and next whose will be in the next step.
__global__ void step(const int *sources, int *next, int *sent, const int *lengths, int row_bytes) {
  const int rank = threadIdx.x, ranks = blockDim.x;
  next[(rank + 1) % ranks] = sources[rank];
  sent[rank] += lengths[sources[rank]] * row_bytes;
}

int main(int argc, char **argv) {
  const int ranks = std::min(argc > 1 ? std::atoi(argv[1]) : 4, kMostRanks), row_bytes = 512;
  const int rows = argc > 2 ? std::atoi(argv[2]) : 10;
  int *sources, *next, *sent, *lengths;
  for (int **array : {&sources, &next, &sent, &lengths})
    cudaMallocManaged(array, ranks * sizeof(int));
  for (int r = 0; r < ranks; r++) {
    sources[r] = r;
    sent[r] = 0;
    lengths[r] = rows / ranks + (r < rows % ranks);
  }
  for (int s = 0; s < ranks - 1; s++) {
    step<<<1, ranks>>>(sources, next, sent, lengths, row_bytes);
    if (const cudaError_t error = cudaDeviceSynchronize()) {
      std::printf("%s\n", cudaGetErrorString(error));
      return 1;
    }
    std::swap(sources, next);
  }
  for (int r = 0; r < ranks; r++) {
    const int found = bytes_sent(r, ranks, std::vector<int>(lengths, lengths + ranks), row_bytes);
    if (found != sent[r]) {
      std::printf("rank %d of %d with %d rows: %d bytes by your formula, %d are sent\n", r, ranks, rows,
                  found, sent[r]);
      return 1;
    }
  }
  std::printf("right\n");
}
