// Where the 16-byte chunks of an operand of wgmma and of a box of TMA lie in shared memory.
#pragma once

#include "machine/swizzle.h"
#include "runtime/work/visibility.h"

#include <cstdint>
#include <vector>

namespace ladder::runtime {

struct ChunkPlace {
  std::uint32_t plain;   ///< its address without the swizzle
  std::uint32_t address; ///< in shared memory
};

/// The chunks of an operand with a matrix descriptor, by group of 8 rows (of A; of B: columns), then by the
/// two of a product along k, then by row. MN-major: by group, then by 8 lines along k, then by line.
LADDER_API std::vector<ChunkPlace> operand_chunks(std::uint64_t descriptor, bool mn_major,
                                                  std::uint32_t groups);

/// The swizzle whose lines have this many bytes; 0 bytes: none. Throws std::invalid_argument.
LADDER_API machine::Swizzle swizzle_of(unsigned bytes);

/// The chunks of a box of `elements` (by dimension, the innermost first), line by line. Throws
/// std::invalid_argument with the rule of cuTensorMapEncodeTiled that the box breaks, and for an address that
/// is not a multiple of 128.
LADDER_API std::vector<ChunkPlace> box_chunks(std::uint32_t address,
                                              const std::vector<std::uint32_t> &elements,
                                              unsigned element_bytes, machine::Swizzle swizzle);

} // namespace ladder::runtime
