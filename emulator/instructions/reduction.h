// Operations of bulk reductions and red.async on elements in memory.
#pragma once

#include "machine/bulk.h"
#include "ptx/ast.h"

#include <string_view>

namespace ladder::instructions {

/// `operation` is and, or, xor, add, inc, dec, min or max; nullptr if the type does not support it. Each
/// element is updated atomically, one by one.
machine::Combine find_reduction(std::string_view operation, ptx::Type type);

} // namespace ladder::instructions
