// The source lines of an instruction.
#pragma once

#include "machine/code.h"

#include <cstddef>
#include <string>

namespace ladder::machine {

/// The innermost line and the kernel line it was inlined into. Without -lineinfo the lines are 0 and the
/// files empty.
struct SourcePlace {
  std::string file, kernel_file;
  int line = 0, kernel_line = 0;
  auto operator<=>(const SourcePlace &) const = default;
};

/// The source lines of the instruction at this index.
SourcePlace source_place(const Code &code, std::size_t index);

} // namespace ladder::machine
