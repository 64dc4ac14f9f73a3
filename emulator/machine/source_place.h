// Where an instruction comes from.
#pragma once

#include "machine/code.h"

#include <cstddef>
#include <string>

namespace ladder::machine {

/// The innermost line and the kernel line that it was inlined at. Lines are 0 and files empty without
/// -lineinfo.
struct SourcePlace {
  std::string file, kernel_file;
  int line = 0, kernel_line = 0;
  auto operator<=>(const SourcePlace &) const = default;
};

/// Of an instruction of the code, by its index.
SourcePlace source_place(const Code &code, std::size_t index);

} // namespace ladder::machine
