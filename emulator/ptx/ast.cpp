#include "ptx/ast.h"

#include <iterator>

namespace ladder::ptx {

namespace {

struct TypeInfo {
  std::string_view name;
  unsigned bytes;
};

constexpr TypeInfo kTypes[] = {
#define TYPE(name, bytes) {#name, bytes},
#include "ptx/types.def"
};

} // namespace

std::optional<Type> type_from_name(std::string_view name) {
  for (std::size_t i = 1; i < std::size(kTypes); ++i)
    if (kTypes[i].name == name)
      return Type(i);
  return std::nullopt;
}

std::string_view type_name(Type type) { return kTypes[std::size_t(type)].name; }

unsigned type_bytes(Type type) { return kTypes[std::size_t(type)].bytes; }

std::string Instruction::full_opcode() const {
  std::string name = opcode;
  for (const std::string &modifier : modifiers)
    name += "." + modifier;
  return name;
}

} // namespace ladder::ptx
