// Re-exports what the Python module needs from the lower layers, whose symbols this library hides.
#pragma once

#include "machine/fault.h"
#include "machine/global_memory.h"
#include "machine/gpu.h"
#include "program/opcode.h"
#include "ptx/ast.h"
#include "runtime/work/visibility.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ladder::runtime {

LADDER_API const machine::VirtualGpu *find_gpu(std::string_view arch);
LADDER_API std::span<const machine::VirtualGpu> virtual_gpus();
LADDER_API std::string_view fault_kind_name(machine::FaultKind kind);
LADDER_API std::string describe(const machine::Fault &fault);
LADDER_API std::string_view type_name(ptx::Type type);

/// A row of the opcode table, with properties from higher layers.
struct OpcodeRow {
  const program::Opcode *opcode;
  bool is_checked; ///< by the sanitizer
};
LADDER_API std::vector<OpcodeRow> opcode_rows();
/// All opcodes that instructions/ binds, with or without a row.
LADDER_API std::vector<std::string_view> bound_opcodes();

} // namespace ladder::runtime
