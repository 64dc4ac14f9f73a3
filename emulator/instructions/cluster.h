// barrier.cluster, whose opcode control_table's barriers share; the encoding of st.async and red.async, for
// the sanitizer.
#pragma once

#include "instructions/binder.h"

namespace ladder::instructions {

bool bind_cluster_barrier(Binder &binder);

/// One lane's st.async or red.async; shared::cluster addresses.
struct AsyncStore {
  std::uint64_t to, mbarrier;
  unsigned bytes;
  bool reduces; ///< red.async
};
AsyncStore async_store_of(machine::Warp &warp, const machine::Instruction &in, int lane);

} // namespace ladder::instructions
