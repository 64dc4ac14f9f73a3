#include "program/program.h"

#include <algorithm>

namespace ladder::program {

bool Instruction::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

void Instruction::find_row() {
  const FoundOpcode found = find_opcode(opcode, modifiers);
  row = found.row;
  traits = found.traits;
  for (const std::string &modifier : modifiers)
    if (const auto type = ptx::type_from_name(modifier))
      types.push_back(*type);
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
