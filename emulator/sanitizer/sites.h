// The instructions of a kernel that the sanitizer looks at, and a copy of the kernel in which it does.
#pragma once

#include "machine/code.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace ladder::sanitizer {

/// What there is to know of an instruction besides its operands. Made once a kernel.
struct Site {
  machine::Handler original = nullptr;        ///< nullptr: not looked at
  unsigned bytes = 0;                         ///< a lane
  unsigned element_bytes = 0, lane_bytes = 0; ///< of a store: in memory, in a register
  std::uint32_t used = ~0u;                   ///< of a load: which of the bytes count, a bit each
  std::uint8_t flags = 0;                     ///< Access::Flag
  bool releases = false;                      ///< .release and .acq_rel
  bool acquires = false;                      ///< .acquire and .acq_rel
  bool passes_l1 = false;                     ///< a load that old data in the L1 cannot reach
  int matrices = 0;                           ///< ldmatrix, stmatrix
  bool is_aligned = false;                    ///< a barrier that takes whole warps
  bool arrives_only = false;
  bool is_read_only_path = false; ///< ld.global.nc
  bool stores_constant = false;   ///< a store of a number that stands in the text
  /// Of an access at an address that comes from one shared variable: where that begins and ends, as offsets
  /// of the block's shared memory. Both 0: not known.
  std::uint32_t object_begin = 0, object_end = 0;
};

/// A kernel whose memory accesses and barriers go through the sanitizer first. The original stays as it is,
/// so that a launch that is not checked pays nothing.
struct CheckedCode {
  std::shared_ptr<const machine::Code> code; ///< a copy, with other handlers
  std::vector<Site> sites;                   ///< by instruction
  bool uses_async_proxy = false;             ///< TMA or products of a warpgroup
};

/// Whether instructions with this effect are looked at.
bool is_checked(program::Effect effect);

std::shared_ptr<const CheckedCode> instrument(const machine::Code &code);

} // namespace ladder::sanitizer
