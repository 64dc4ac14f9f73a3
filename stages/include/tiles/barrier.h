// Barriers in shared memory (mbarrier, sm_90): threads arrive, TMA delivers, and only those who need it wait.
// PTX manual, "Parallel Synchronization and Communication Instructions: mbarrier".
#pragma once

#include "ptx.h"

namespace tiles {

/// Goes through phases. A phase ends when all expected arrivals and all announced bytes have come. Phases are
/// told apart by parity: 0 for the first, then 1, 0, ...
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

  /// Arrives, and announces so many bytes for this phase.
  __device__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }

  /// Announces bytes for this phase, which must not be over: before the thread's arrival.
  __device__ void expect(int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }

  /// Whether the phase of that parity, the current one or the one before it, has ended. May wait a while
  /// before it answers.
  __device__ bool try_wait(uint32_t parity) const {
    uint32_t ended;
    asm volatile("{.reg .pred ended;"
                 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;"
                 "selp.b32 %0, 1, 0, ended;}"
                 : "=r"(ended)
                 : "r"(address()), "r"(parity)
                 : "memory");
    return ended;
  }

  __device__ void wait(uint32_t parity) const {
    while (!try_wait(parity)) {
    }
  }
};

/// Makes initialised barriers visible to TMA.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

} // namespace tiles
