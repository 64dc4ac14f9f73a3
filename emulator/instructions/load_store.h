// How loads and stores execute. A vector is one access to all its elements.
#pragma once

#include "instructions/addressing.h"
#include "machine/code.h"
#include "ptx/ast.h"

#include <cstdint>

namespace ladder::instructions {

// Operands: op[0] the address, op[1..4] the elements (more for .v8), op[5] the used-bytes mask if kPartial is
// set. Flags above the address's:
inline constexpr std::uint32_t kAcquire = 1u << 12; ///< fence after the access
inline constexpr std::uint32_t kRelease = 1u << 13; ///< fence before it
inline constexpr std::uint32_t kPartial = 1u << 14; ///< a widened load: only some bytes are used

struct LoadHandlers {
  machine::Handler by_address, entry_param; ///< entry_param: of a kernel's parameter
};

/// For elements of `type`, extended to registers of `register_bytes` (2, 4 or 8, at least the size of the
/// type).
LoadHandlers load_handlers(Space space, ptx::Type type, unsigned register_bytes);

/// For elements of `bytes`, from registers with `lane_bytes` (4 or 8) per lane; nullptr for constant memory.
machine::Handler store_handler(Space space, unsigned bytes, unsigned lane_bytes);

} // namespace ladder::instructions
