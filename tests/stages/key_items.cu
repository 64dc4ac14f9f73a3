// Prints the work items of a rung of gradients, KERNEL, in the order of their numbers: key/value head, first
// key, steps.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ladder/definitions.h"
#include KERNEL

using Tiles = Arrangement<__nv_bfloat16, 128>;

__global__ void list(const __grid_constant__ AttentionBackwardProblem problem,
                     const __grid_constant__ WorkItems items, int3 *found) {
  for (unsigned number = threadIdx.x; number < items.count; number += blockDim.x) {
    const auto steps = items.steps_of<Tiles>(problem, number);
    found[number] = {steps.kv_head, steps.key, steps.count()};
  }
}

/// Arguments: batch, key/value heads, q_len, kv_len, whether the mask is causal.
int main(int, char **arguments) {
  AttentionBackwardProblem problem{};
  problem.batch = std::atoi(arguments[1]);
  problem.heads = problem.kv_heads = std::atoi(arguments[2]);
  problem.q_len = std::atoi(arguments[3]);
  problem.kv_len = std::atoi(arguments[4]);
  problem.is_causal = std::atoi(arguments[5]);
  const WorkItems items(problem, Tiles::keys);
  std::vector<int3> found(items.count);
  int3 *data;
  ladder::check(cudaMalloc(&data, found.size() * sizeof(int3)), "items");
  list<<<1, 32>>>(problem, items, data);
  ladder::check(cudaMemcpy(found.data(), data, found.size() * sizeof(int3), cudaMemcpyDeviceToHost), "items");
  for (const int3 item : found)
    std::printf("%d %d %d\n", item.x, item.y, item.z);
  return cudaFree(data);
}
