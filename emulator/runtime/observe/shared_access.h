// The bank model for a single access that a user specifies.
#pragma once

#include "machine/bank_model.h"
#include "runtime/work/visibility.h"

#include <string_view>
#include <vector>

namespace ladder::runtime {

/// The cost of one access by a warp. `op` is ld, st, ldmatrix, stmatrix, atom.add, atom.cas or cp.async;
/// `width` is bytes per lane, or the number of 8x8 tiles; bit i of `active` says whether lane i takes part.
/// Throws std::invalid_argument for an invalid access, or one that the model does not cover.
LADDER_API machine::SharedCost shared_access(std::string_view op, unsigned width,
                                             const machine::LaneAddresses &addresses, std::uint32_t active);

/// The passes of the same access, in order; none for cp.async, whose copies the hardware counters do not see.
LADDER_API std::vector<machine::SharedPass> shared_passes(std::string_view op, unsigned width,
                                                          const machine::LaneAddresses &addresses,
                                                          std::uint32_t active);

} // namespace ladder::runtime
