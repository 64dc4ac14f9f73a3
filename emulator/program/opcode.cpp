#include "program/opcode.h"

#include <algorithm>
#include <unordered_map>

namespace ladder::program {

namespace {

using namespace trait;

constexpr Opcode kOpcodes[] = {
#define OPCODE(form, traits, effect) {form, traits, Effect::effect, #effect},
#include "program/opcodes.def"
#undef OPCODE
};

constexpr Opcode kUnknown{"", nothing, Effect::none, "none"};

std::vector<std::string> split(std::string_view dotted) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= dotted.size();) {
    const std::size_t end = std::min(dotted.find('.', begin), dotted.size());
    words.emplace_back(dotted.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

struct Form {
  std::vector<std::string> modifiers;
  const Opcode *opcode;
};

/// Rows by the name before the first dot, in table order.
const std::unordered_map<std::string_view, std::vector<Form>> &forms() {
  static const auto all = [] {
    std::unordered_map<std::string_view, std::vector<Form>> map;
    for (const Opcode &opcode : kOpcodes) {
      std::vector<std::string> words = split(opcode.form);
      words.erase(words.begin());
      map[opcode.form.substr(0, opcode.form.find('.'))].push_back({std::move(words), &opcode});
    }
    return map;
  }();
  return all;
}

} // namespace

std::span<const Opcode> opcodes() { return kOpcodes; }

const Opcode &find_opcode(std::string_view opcode, const std::vector<std::string> &modifiers) {
  const auto found = forms().find(opcode);
  if (found == forms().end())
    return kUnknown;
  for (const Form &form : found->second)
    if (std::all_of(form.modifiers.begin(), form.modifiers.end(), [&](const std::string &word) {
          return std::find(modifiers.begin(), modifiers.end(), word) != modifiers.end();
        }))
      return *form.opcode;
  return kUnknown;
}

const Opcode &find_opcode(std::string_view full_opcode) {
  std::vector<std::string> words = split(full_opcode);
  const std::string opcode = std::move(words.front());
  words.erase(words.begin());
  return find_opcode(opcode, words);
}

} // namespace ladder::program
