#include "ptx/ast.h"

#include <array>

namespace ladder::ptx {

namespace {

struct TypeInfo {
  std::string_view name;
  Type type;
  unsigned bytes;
};

constexpr std::array<TypeInfo, 22> kTypes = {{
    {"none", Type::none, 0}, {"b8", Type::b8, 1},         {"b16", Type::b16, 2},   {"b32", Type::b32, 4},
    {"b64", Type::b64, 8},   {"b128", Type::b128, 16},    {"u8", Type::u8, 1},     {"u16", Type::u16, 2},
    {"u32", Type::u32, 4},   {"u64", Type::u64, 8},       {"s8", Type::s8, 1},     {"s16", Type::s16, 2},
    {"s32", Type::s32, 4},   {"s64", Type::s64, 8},       {"f16", Type::f16, 2},   {"f16x2", Type::f16x2, 4},
    {"bf16", Type::bf16, 2}, {"bf16x2", Type::bf16x2, 4}, {"tf32", Type::tf32, 4}, {"f32", Type::f32, 4},
    {"f64", Type::f64, 8},   {"pred", Type::pred, 0},
}};

/// True if the table follows the order of the enum, so that a type indexes it directly.
constexpr bool in_order() {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (static_cast<std::size_t>(kTypes[i].type) != i)
      return false;
  return true;
}
static_assert(in_order());

} // namespace

std::optional<Type> type_from_name(std::string_view name) {
  for (const TypeInfo &info : kTypes)
    if (info.type != Type::none && info.name == name)
      return info.type;
  return std::nullopt;
}

std::string_view type_name(Type type) { return kTypes[static_cast<std::size_t>(type)].name; }

unsigned type_bytes(Type type) { return kTypes[static_cast<std::size_t>(type)].bytes; }

std::string Instruction::full_opcode() const {
  std::string name = opcode;
  for (const std::string &modifier : modifiers)
    name += "." + modifier;
  return name;
}

} // namespace ladder::ptx
