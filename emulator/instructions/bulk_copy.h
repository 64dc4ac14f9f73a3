// cp.async.bulk: one thread copies a stretch of memory. How it is encoded: op[0] the destination's address,
// op[1] the source's, op[2] the size and, into shared memory, op[3] the mbarrier's; their offsets are in
// Code::more, 64 bits each, low half first.
#pragma once

#include "instructions/binder.h"
#include "machine/warp.h"

#include <cstdint>

namespace ladder::instructions {

/// A bulk copy of one lane. `mbarrier` is 0 for a copy to global memory.
struct BulkCopy {
  std::uint64_t to = 0, from = 0, bytes = 0, mbarrier = 0;
};
bool is_bulk_load(const machine::Instruction &in);
BulkCopy bulk_copy_of(machine::Warp &warp, const machine::Instruction &in, int lane);

/// Writes what bulk copies bring to this mbarrier, and tells it. Done when somebody looks at it, so that a
/// missing wait shows.
void land_bulk_copies(machine::Warp &warp, std::uint32_t mbarrier);

bool bind_bulk_copy(Binder &binder);

} // namespace ladder::instructions
