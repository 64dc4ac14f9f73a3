// Warpgroups of a block with different tasks: one thread that acts for its warp, registers that move from
// warpgroups that need few to those that need many (setmaxnreg, sm_90a), and an order in which warpgroups
// work.
#pragma once

#include "ptx.h"

namespace tiles {

/// True in one lane of the calling warp, all of which call it.
__device__ inline bool elect_one() {
  uint32_t elected;
  asm volatile("{.reg .pred elected;"
               "elect.sync _|elected, 0xffffffff;"
               "selp.b32 %0, 1, 0, elected;}"
               : "=r"(elected));
  return elected;
}

/// What setmaxnreg takes.
template <int kRegisters>
concept RegistersPerThread = kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0;

// From here on each thread of the calling warpgroup has kRegisters registers. Taking waits until others have
// given up enough. The kernel needs __launch_bounds__, and its warpgroups together have at most what they
// started with.
template <int kRegisters>
  requires RegistersPerThread<kRegisters>
__device__ inline void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
  requires RegistersPerThread<kRegisters>
__device__ inline void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// kGroups warpgroups that work in turn: 0, 1, ..., 0, ... Each meets its predecessor at a barrier of its
/// own, kFirstBarrier + its number. All begin with start() and end with stop().
template <int kGroups, int kFirstBarrier> struct InTurn {
  static_assert(kGroups >= 2 && kFirstBarrier + kGroups <= 16, "a block has 16 barriers");
  static constexpr int threads = 2 * 128;
  int group;

  __device__ void start() const {
    if (group == kGroups - 1)
      pass();
  }
  /// Waits for this warpgroup's turn.
  __device__ void wait() const { ptx::barrier(kFirstBarrier + group, threads); }
  /// Gives the turn to the next one.
  __device__ void pass() const {
    ptx::barrier_arrive(kFirstBarrier + (group + 1 == kGroups ? 0 : group + 1), threads);
  }
  __device__ void stop() const {
    if (group == 0)
      wait();
  }
};

} // namespace tiles
