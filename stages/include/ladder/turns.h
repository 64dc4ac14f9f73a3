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

} // namespace ladder
