#include "sanitizer/sites.h"

#include "instructions/addressing.h"
#include "sanitizer/block_checker.h"
#include "sanitizer/shadow.h"

#include <algorithm>

namespace ladder::sanitizer {

namespace {

using instructions::Space;
using machine::Handler;

/// The first type among the modifiers, which is that of memory.
ptx::Type memory_type(const program::Instruction &source) {
  for (const std::string &modifier : source.modifiers)
    if (const auto type = ptx::type_from_name(modifier))
      return *type;
  return ptx::Type::none;
}

/// Bits 8 to 11 of the flags of ld, st, atom and red: how many elements an access has.
unsigned element_count(const machine::Instruction &in) { return in.flags >> 8 & 15; }

void describe_access(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  site.element_bytes = std::min(ptx::type_bytes(memory_type(source)), 8u);
  site.bytes = element_count(in) * site.element_bytes;
  const bool is_volatile = source.has("volatile");
  if (is_volatile)
    site.flags = Access::strong | Access::is_volatile;
  for (const std::string_view order : {"relaxed", "acquire", "release", "acq_rel", "mmio"})
    if (source.has(order))
      site.flags = Access::strong;
  site.releases = source.has("release") || source.has("acq_rel");
}

/// Registers of up to 32 bits have lanes of 4 bytes, wider ones of 8.
unsigned lane_bytes_of(const program::Instruction &source, unsigned element_bytes) {
  const program::Operand &value = source.operands.at(1);
  const auto width = [](const program::Operand &operand) {
    return operand.kind != program::Operand::Kind::reg ? 0u : ptx::type_bytes(operand.reg.type) > 4 ? 8u : 4u;
  };
  unsigned bytes = width(value);
  for (const program::Operand &element : value.elements)
    bytes = std::max(bytes, width(element));
  return bytes ? bytes : element_bytes > 4 ? 8 : 4;
}

bool is_memory_space(const machine::Instruction &in) {
  const Space space = instructions::address_space(in.flags);
  return space == Space::generic || space == Space::global || space == Space::shared || space == Space::local;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The checking handler of an instruction, nullptr for one that is not looked at.
Handler describe(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  const std::string &opcode = source.opcode;
  if (is_one_of(opcode, {"ld", "ldu"}) && is_memory_space(in)) {
    describe_access(source, in, site);
    return checked_load;
  }
  if (opcode == "st" && is_memory_space(in)) {
    describe_access(source, in, site);
    site.lane_bytes = lane_bytes_of(source, site.element_bytes);
    return checked_store;
  }
  if (is_one_of(opcode, {"atom", "red"})) {
    describe_access(source, in, site);
    site.flags = Access::strong;
    return checked_atomic;
  }
  if (is_one_of(opcode, {"ldmatrix", "stmatrix"})) {
    site.matrices = source.has("x1") ? 1 : source.has("x2") ? 2 : 4;
    site.bytes = 16;
    site.flags = Access::collective;
    return opcode == "ldmatrix" ? checked_matrix_load : checked_matrix_store;
  }
  if (opcode == "wmma" && (source.has("load") || source.has("store"))) {
    site.flags = Access::collective;
    return source.has("load") ? checked_fragment_load : checked_fragment_store;
  }
  if (opcode == "cp" && source.has("bulk"))
    return source.has("commit_group") || source.has("wait_group") ? nullptr : checked_bulk_copy;
  if (opcode == "cp" && source.has("async")) {
    if (source.has("commit_group"))
      return checked_commit;
    if (source.has("wait_group") || source.has("wait_all"))
      return checked_wait;
    return source.has("mbarrier") ? checked_copy_arrive : checked_copy;
  }
  if (opcode == "mbarrier" && !source.has("pending_count")) {
    site.bytes = 8;
    // Setting one up is no atomic operation: the others must wait for it.
    site.flags = source.has("init") || source.has("inval") ? 0 : Access::strong;
    return source.has("test_wait") || source.has("try_wait") ? checked_mbarrier_wait : checked_mbarrier;
  }
  if (is_one_of(opcode, {"bar", "barrier"}) && !source.has("warp")) {
    // bar is short for barrier.aligned.
    site.is_aligned = opcode == "bar" || source.has("aligned");
    site.arrives_only = source.has("arrive");
    return checked_barrier;
  }
  if (opcode == "bar" && source.has("warp"))
    return checked_warp_barrier;
  if (opcode == "shfl")
    return checked_shuffle;
  if (is_one_of(opcode, {"fence", "membar"}) && !source.has("proxy"))
    return checked_fence;
  return nullptr;
}

} // namespace

std::shared_ptr<const CheckedCode> instrument(const machine::Code &code) {
  auto checked = std::make_shared<CheckedCode>();
  auto copy = std::make_shared<machine::Code>(code);
  checked->sites.resize(code.instructions.size());
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    if (!code.sources[i])
      continue;
    machine::Instruction &instruction = copy->instructions[i];
    Site &site = checked->sites[i];
    if (const Handler handler = describe(*code.sources[i], instruction, site))
      site.original = std::exchange(instruction.execute, handler);
  }
  checked->code = std::move(copy);
  return checked;
}

} // namespace ladder::sanitizer
