#include "runtime/work/lower_layers.h"

#include "instructions/binder.h"
#include "sanitizer/sites.h"

namespace ladder::runtime {

const machine::VirtualGpu *find_gpu(std::string_view arch) { return machine::find_gpu(arch); }
std::span<const machine::VirtualGpu> virtual_gpus() { return machine::virtual_gpus(); }
std::string_view fault_kind_name(machine::FaultKind kind) { return machine::fault_kind_name(kind); }
std::string describe(const machine::Fault &fault) { return fault.describe(); }
std::string_view type_name(ptx::Type type) { return ptx::type_name(type); }

std::vector<OpcodeRow> opcode_rows() {
  std::vector<OpcodeRow> rows;
  for (const program::Opcode &opcode : program::opcodes())
    rows.push_back({&opcode, sanitizer::is_checked(opcode.effect)});
  return rows;
}

std::vector<std::string_view> bound_opcodes() { return instructions::bound_opcodes(); }

} // namespace ladder::runtime
