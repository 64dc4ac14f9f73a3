// The operations of bulk reductions and red.async on elements in memory.
#pragma once

#include "machine/bulk.h"
#include "ptx/ast.h"

#include <string_view>

namespace ladder::instructions {

/// `operation` is and, or, xor, add, inc, dec, min or max; nullptr for a type that does not have it. Elements
/// are updated one by one, each atomically.
machine::Combine find_reduction(std::string_view operation, ptx::Type type);

} // namespace ladder::instructions
