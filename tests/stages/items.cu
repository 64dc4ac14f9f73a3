// Prints the work items of a rung, KERNEL, in the order of their numbers: head, first row, keys.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ladder/error_definitions.h"
#include KERNEL

using Item = WorkItem<Arrangement<__nv_bfloat16, 128>>;

__global__ void list(const __grid_constant__ AttentionProblem problem, unsigned together, int3 *items) {
  for (unsigned number = threadIdx.x; number < Item::count(problem); number += blockDim.x) {
    const Item item(problem, together, number);
    items[number] = {item.head, item.row, item.keys};
  }
}

/// Arguments: batch, heads, q_len, kv_len, is_causal, blocks.
int main(int, char **arguments) {
  AttentionProblem problem{};
  problem.batch = std::atoi(arguments[1]);
  problem.heads = problem.kv_heads = std::atoi(arguments[2]);
  problem.q_len = std::atoi(arguments[3]);
  problem.kv_len = std::atoi(arguments[4]);
  problem.is_causal = std::atoi(arguments[5]);
  std::vector<int3> items(Item::count(problem));
  int3 *data;
  ladder::check(cudaMalloc(&data, items.size() * sizeof(int3)), "items");
  list<<<1, 32>>>(problem, Item::heads_together(problem, std::atoi(arguments[6])), data);
  ladder::check(cudaMemcpy(items.data(), data, items.size() * sizeof(int3), cudaMemcpyDeviceToHost), "items");
  for (const int3 item : items)
    std::printf("%d %d %d\n", item.x, item.y, item.z);
  return cudaFree(data);
}
