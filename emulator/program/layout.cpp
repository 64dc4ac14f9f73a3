// What a kernel uses: reachable functions and the layout of shared memory.
#include "program/align.h"
#include "program/program.h"

#include <algorithm>
#include <set>

namespace ladder::program {

namespace {

/// What a piece of code refers to.
struct Mentions {
  std::set<std::uint32_t> functions, symbols;
  bool is_indirect = false; ///< calls through a register or takes a function's address
};

void collect(const Operand &operand, bool is_call_target, Mentions &mentions) {
  if (operand.kind == Operand::Kind::function && operand.function >= 0) {
    mentions.functions.insert(std::uint32_t(operand.function));
    mentions.is_indirect |= !is_call_target;
  } else if (operand.kind == Operand::Kind::symbol) {
    mentions.symbols.insert(operand.symbol);
  } else if (operand.kind == Operand::Kind::reg && is_call_target) {
    mentions.is_indirect = true;
  }
  for (const Operand &element : operand.elements)
    collect(element, false, mentions);
}

} // namespace

KernelLayout layout_kernel(const Program &program, std::uint32_t entry) {
  KernelLayout layout;
  std::vector<bool> reached(program.functions.size(), false);
  const auto reach = [&](std::uint32_t function) {
    if (!reached[function]) {
      reached[function] = true;
      layout.functions.push_back(function);
    }
  };
  reach(entry);
  Mentions mentions;
  bool all_reached = false;
  for (std::size_t next = 0; next < layout.functions.size(); ++next) {
    for (const Instruction &instruction : program.functions[layout.functions[next]].code)
      for (std::size_t i = 0; i < instruction.operands.size(); ++i)
        collect(instruction.operands[i], instruction.is(Trait::calls) && i == 1, mentions);
    for (const std::uint32_t function : mentions.functions)
      reach(function);
    mentions.functions.clear();
    if (mentions.is_indirect && !all_reached) {
      all_reached = true;
      for (std::uint32_t f = 0; f < program.functions.size(); ++f)
        if (!program.functions[f].is_entry)
          reach(f);
    }
  }

  std::uint64_t dynamic_alignment = 1;
  for (const std::uint32_t index : mentions.symbols) { // in declaration order
    const Symbol &symbol = program.symbols[index];
    if (symbol.space != ptx::StateSpace::shared)
      continue;
    if (symbol.is_dynamic_shared) {
      dynamic_alignment = std::max(dynamic_alignment, symbol.alignment);
      continue;
    }
    const std::uint64_t offset = align_up(layout.static_shared_bytes, symbol.alignment);
    layout.shared_offsets[index] = offset;
    layout.static_shared_bytes = offset + symbol.bytes;
  }
  layout.dynamic_shared_offset = align_up(layout.static_shared_bytes, dynamic_alignment);
  for (const std::uint32_t index : mentions.symbols)
    if (program.symbols[index].space == ptx::StateSpace::shared && program.symbols[index].is_dynamic_shared)
      layout.shared_offsets[index] = layout.dynamic_shared_offset;
  return layout;
}

} // namespace ladder::program
