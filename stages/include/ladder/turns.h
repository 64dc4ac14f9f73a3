// Turns: counters in global memory that let blocks add to the same sums in a fixed order.
#pragma once

#include "ladder/ptx.h"

namespace ladder {

/// Waits until the counter is `turn`. Called by a whole warp. What the block that set the counter wrote
/// before is then visible.
__device__ inline void wait_for_turn(const int *counter, int turn) {
  while (ptx::load_acquire(counter) != turn)
    ;
  __syncwarp();
}

/// Sets the counter to `turn`. What all warps of the block wrote before their last barrier is then visible to
/// those who wait.
__device__ inline void pass_turn(int *counter, int turn) {
  if (threadIdx.x == 0)
    ptx::store_release(counter, turn);
}

/// Adds 1 for the calling thread. What it has seen, a thread sees that waits for the count.
__device__ inline void count_up(int *counter) {
  __threadfence();
  atomicAdd(counter, 1);
}
__device__ inline void wait_for_count(const int *counter, int count) {
  while (ptx::load_acquire(counter) != count)
    ;
}

} // namespace ladder
