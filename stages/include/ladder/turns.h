// Turns: counters in global memory that let blocks add to the same sums in a fixed order.
#pragma once

#include "ladder/ptx.h"

namespace ladder {

/// Waits until the counter is `turn`. Called by a whole warp, which then sees what the block that has set it
/// did before.
__device__ inline void wait_for_turn(const int *counter, int turn) {
  while (ptx::load_acquire(counter) != turn)
    ;
  __syncwarp();
}

/// Sets the counter to `turn`, after what all warps of the block did before their last barrier.
__device__ inline void pass_turn(int *counter, int turn) {
  if (threadIdx.x == 0)
    ptx::store_release(counter, turn);
}

} // namespace ladder
