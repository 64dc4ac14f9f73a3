// Prints the work items of a rung, KERNEL, in the order of their numbers: head, first row, keys.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ladder/definitions.h"
#include KERNEL

using Item = WorkItem<Arrangement<__nv_bfloat16, 128>>;

template <typename I> __device__ int keys_of(const I &item) {
  if constexpr (requires { item.keys; })
    return item.keys;
  else
    return item.end - item.key;
}

/// The masks of a rung that takes windows: all keys, causal, or causal with 100 keys before each query's own.
template <typename P> void set_band(P &problem, int mask) {
  if constexpr (requires { problem.begin; }) {
    problem.begin = mask == 2 ? -100 : -problem.q_len;
    problem.end = mask ? 1 : problem.kv_len;
  } else {
    problem.is_causal = mask;
  }
}

__global__ void list(const __grid_constant__ AttentionProblem problem, unsigned together, int3 *items) {
  for (unsigned number = threadIdx.x; number < Item::count(problem); number += blockDim.x) {
    const Item item(problem, together, number);
    items[number] = {item.head, item.row, keys_of(item)};
  }
}

/// How many heads are together: not every rung asks how many blocks there are.
template <typename I> unsigned together(const AttentionProblem &problem, unsigned blocks) {
  if constexpr (requires { I::heads_together(problem); })
    return I::heads_together(problem);
  else
    return I::heads_together(problem, blocks);
}

/// Arguments: batch, heads, q_len, kv_len, mask, blocks.
int main(int, char **arguments) {
  AttentionProblem problem{};
  problem.batch = std::atoi(arguments[1]);
  problem.heads = problem.kv_heads = std::atoi(arguments[2]);
  problem.q_len = std::atoi(arguments[3]);
  problem.kv_len = std::atoi(arguments[4]);
  set_band(problem, std::atoi(arguments[5]));
  std::vector<int3> items(Item::count(problem));
  int3 *data;
  ladder::check(cudaMalloc(&data, items.size() * sizeof(int3)), "items");
  list<<<1, 32>>>(problem, together<Item>(problem, std::atoi(arguments[6])), data);
  ladder::check(cudaMemcpy(items.data(), data, items.size() * sizeof(int3), cudaMemcpyDeviceToHost), "items");
  for (const int3 item : items)
    std::printf("%d %d %d\n", item.x, item.y, item.z);
  return cudaFree(data);
}
