// Launches on many streams take numbers from ladder::LaunchCounter: on more streams than it has counters.
// Prints what is wrong, and "ok" at the end if nothing is.
#include <cstdio>
#include <vector>

#include "ladder/counter.h"
#include "ladder/definitions.h"

constexpr unsigned kNumbers = 20, kBlocks = 7, kLaunches = 2;
constexpr int kStreams = ladder::detail::kCounters + 3;

/// As the persistent rungs: a block's first number is its own.
__global__ void take(unsigned *counter, unsigned *taken) {
  for (unsigned number = blockIdx.x; number < kNumbers; number = gridDim.x + atomicInc(counter, kNumbers - 1))
    atomicAdd(taken + number, 1);
}

int main() {
  unsigned *taken;
  ladder::check(cudaMalloc(&taken, kStreams * kNumbers * sizeof(unsigned)), "taken");
  ladder::check(cudaMemset(taken, 0, kStreams * kNumbers * sizeof(unsigned)), "taken");
  std::vector<cudaStream_t> streams(kStreams); // the first one is the legacy stream
  for (int s = 1; s < kStreams; s++)
    ladder::check(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking), "stream");
  ladder::check(cudaDeviceSynchronize(), "taken");
  for (unsigned launch = 0; launch < kLaunches; launch++)
    for (int s = 0; s < kStreams; s++) {
      const ladder::LaunchCounter counter(streams[s], "counter");
      take<<<kBlocks, 1, 0, streams[s]>>>(counter.data(), taken + s * kNumbers);
      ladder::check(cudaGetLastError(), "take");
    }
  ladder::check(cudaDeviceSynchronize(), "take");
  std::vector<unsigned> found(kStreams * kNumbers);
  ladder::check(cudaMemcpy(found.data(), taken, found.size() * sizeof(unsigned), cudaMemcpyDeviceToHost),
                "taken");
  bool is_right = true;
  for (size_t i = 0; i < found.size(); i++)
    if (found[i] != kLaunches) {
      std::printf("stream %zu: number %zu taken %u times\n", i / kNumbers, i % kNumbers, found[i]);
      is_right = false;
    }
  for (int s = 1; s < kStreams; s++)
    ladder::check(cudaStreamDestroy(streams[s]), "stream");
  ladder::check(cudaFree(taken), "taken");
  if (is_right)
    std::puts("ok");
}
