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
  std::uint8_t flags = 0;                     ///< Access::Flag
  bool releases = false;                      ///< .release and .acq_rel
  int matrices = 0;                           ///< ldmatrix, stmatrix
  bool is_aligned = false;                    ///< a barrier that takes whole warps
  bool arrives_only = false;
};

/// A kernel whose memory accesses and barriers go through the sanitizer first. The original stays as it is,
/// so that a launch that is not checked pays nothing.
struct CheckedCode {
  std::shared_ptr<const machine::Code> code; ///< a copy, with other handlers
  std::vector<Site> sites;                   ///< by instruction
};

std::shared_ptr<const CheckedCode> instrument(const machine::Code &code);

} // namespace ladder::sanitizer
