#include "program/program.h"

#include <algorithm>

namespace ladder::program {

bool Instruction::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

bool Instruction::is_poll() const {
  if (is(Trait::polls_if_strong))
    return has("volatile") || has("relaxed") || has("acquire") || has("mmio");
  return is(Trait::polls);
}

std::string Instruction::full_opcode() const {
  std::string name = opcode;
  for (const std::string &modifier : modifiers)
    name += "." + modifier;
  return name;
}

const Function *Program::find(const std::string &name) const {
  const auto found = function_index.find(name);
  return found == function_index.end() ? nullptr : &functions[found->second];
}

} // namespace ladder::program
