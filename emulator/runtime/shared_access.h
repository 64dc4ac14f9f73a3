// The bank model by itself, for one access that a person writes down.
#pragma once

#include "machine/bank_model.h"
#include "runtime/visibility.h"

#include <string_view>
#include <vector>

namespace ladder::runtime {

/// The cost of one access of a warp. `op` is ld, st, ldmatrix, stmatrix, atom.add, atom.cas or cp.async;
/// `width` bytes a lane, or the number of 8x8 tiles; bit i of `active` says whether lane i takes part. Throws
/// std::invalid_argument for what is no access, or one that the model does not cover.
LADDER_API machine::SharedCost shared_access(std::string_view op, unsigned width,
                                             const machine::LaneAddresses &addresses, std::uint32_t active);

/// The passes that the same access is served in, in order; none for cp.async, whose copies the counters do
/// not see.
LADDER_API std::vector<machine::SharedPass> shared_passes(std::string_view op, unsigned width,
                                                          const machine::LaneAddresses &addresses,
                                                          std::uint32_t active);

} // namespace ladder::runtime
