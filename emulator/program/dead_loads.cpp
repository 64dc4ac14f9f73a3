#include "program/dead_loads.h"

#include "program/registers.h"

#include <cstdint>

namespace ladder::program {

namespace {

/// True if the instruction does nothing but write registers.
bool only_writes_registers(const Instruction &instruction) {
  constexpr std::uint64_t kActs = trait::branches | trait::calls | trait::returns | trait::exits |
                                  trait::traps | trait::barrier | trait::lands_late;
  if (!instruction.is(Trait::writes_first) || instruction.traits & kActs || instruction.is_poll())
    return false;
  switch (instruction.row->effect) {
  case Effect::none:
  case Effect::load:
  case Effect::shuffle:
  case Effect::window:
    return true;
  default:
    return false;
  }
}

} // namespace

void find_dead_loads(std::vector<Instruction> &code, std::size_t registers) {
  std::vector<std::vector<std::uint32_t>> writers(registers);
  std::vector<std::uint32_t> left; // live, but their sources have not been visited
  std::vector<bool> is_live(code.size(), false);
  const auto revive = [&](std::uint32_t i) {
    if (!is_live[i])
      left.push_back(i);
    is_live[i] = true;
  };
  for (std::uint32_t i = 0; i < code.size(); ++i) {
    bool writes = false;
    visit_registers(code[i], [&](Register &reg, Use use) {
      if (use == Use::read)
        return;
      writes = true;
      writers[reg.offset].push_back(i);
    });
    if (!writes || !only_writes_registers(code[i]))
      revive(i);
  }
  while (!left.empty()) {
    const std::uint32_t i = left.back();
    left.pop_back();
    visit_registers(code[i], [&](Register &reg, Use use) {
      if (use != Use::read)
        return;
      for (const std::uint32_t writer : writers[reg.offset])
        revive(writer);
      writers[reg.offset].clear();
    });
  }
  for (std::size_t i = 0; i < code.size(); ++i)
    code[i].is_dead = !is_live[i] && code[i].row->effect == Effect::load;
}

} // namespace ladder::program
