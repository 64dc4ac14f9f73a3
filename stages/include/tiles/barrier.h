// mbarriers, barriers in shared memory (sm_90): they count arrivals of threads and bytes loaded by TMA. PTX
// manual, "Parallel Synchronization and Communication Instructions: mbarrier".
#pragma once

#include "ptx.h"

namespace tiles {

/// An mbarrier. Its phase completes when all expected threads have arrived and all expected bytes are loaded;
/// then the next one starts. Phases are distinguished by their parity: 0 for the first, then 1, 0, ...
struct Barrier {
  uint64_t state;

  __device__ uint32_t address() const { return ptx::shared_address(&state); }

  /// Called by one thread, before fence_barrier_init() and a barrier of the block.
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }

  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }

  /// Arrives, and adds to the expected bytes of this phase.
  __device__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }

  /// Adds to the expected bytes of this phase, which must not be complete: before the thread's arrival.
  __device__ void expect(int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }

  /// Whether the phase of that parity, the current one or the one before it, is complete. May block for a
  /// limited time.
  __device__ bool try_wait(uint32_t parity) const {
    uint32_t complete;
    asm volatile("{.reg .pred complete;"
                 "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;"
                 "selp.b32 %0, 1, 0, complete;}"
                 : "=r"(complete)
                 : "r"(address()), "r"(parity)
                 : "memory");
    return complete;
  }

  __device__ void wait(uint32_t parity) const {
    while (!try_wait(parity)) {
    }
  }
};

/// As Barrier::init, for each of an array's barriers.
template <int n> __device__ inline void init(Barrier (&barriers)[n], int arrivals) {
  for (Barrier &barrier : barriers)
    barrier.init(arrivals);
}

/// Makes initialised mbarriers visible to TMA.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

} // namespace tiles
