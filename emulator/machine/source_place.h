// The source lines of an instruction.
#pragma once

#include "machine/code.h"

#include <cstddef>
#include <string>

namespace ladder::machine {

/// The innermost line, the kernel line that it was inlined into, and the own line: the innermost line in the
/// kernel's own file. If the kernel calls a function of its file that calls a header's function, the own line
/// is the call of the header's function. Without -lineinfo the lines are 0 and the files empty.
struct SourcePlace {
  std::string file, kernel_file;
  int line = 0, kernel_line = 0, own_line = 0;
  auto operator<=>(const SourcePlace &) const = default;
};

/// The source lines of the instruction at this index.
SourcePlace source_place(const Code &code, std::size_t index);
SourcePlace source_place(const ptx::Module &module, const program::Instruction &instruction);

/// " (kernel.cu:12)", the own line; "" without -lineinfo.
std::string own_line_text(const SourcePlace &place);

} // namespace ladder::machine
