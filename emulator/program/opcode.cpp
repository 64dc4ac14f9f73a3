#include "program/opcode.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace ladder::program {

namespace {

using namespace trait;

constexpr Opcode kOpcodes[] = {
#define OPCODE(form, traits, effect) {form, traits, Effect::effect, #effect},
#define BITWISE(form, traits, rule) {form, traits, Effect::none, "none", BitRule::rule},
#define MODIFIER(name, traits)
#include "program/opcodes.def"
#undef OPCODE
#undef BITWISE
#undef MODIFIER
};

constexpr Opcode kUnknown{"", nothing, Effect::none, "none"};

const std::unordered_map<std::string_view, std::uint64_t> kModifiers{
#define OPCODE(form, traits, effect)
#define BITWISE(form, traits, rule)
#define MODIFIER(name, traits) {name, traits},
#include "program/opcodes.def"
#undef OPCODE
#undef BITWISE
#undef MODIFIER
};

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

FoundOpcode find_opcode(std::string_view opcode, const std::vector<std::string> &modifiers) {
  const auto has = [&](const std::string &word) {
    return std::ranges::find(modifiers, word) != modifiers.end();
  };
  FoundOpcode found{&kUnknown, 0};
  if (const auto all = forms().find(opcode); all != forms().end())
    if (const auto form = std::ranges::find_if(
            all->second, [&](const Form &one) { return std::ranges::all_of(one.modifiers, has); });
        form != all->second.end())
      found = {form->opcode, form->opcode->traits};
  for (const std::string &modifier : modifiers)
    if (const auto known = kModifiers.find(modifier); known != kModifiers.end())
      found.traits |= known->second;
  return found;
}

FoundOpcode find_opcode(std::string_view full_opcode) {
  std::vector<std::string> words = split(full_opcode);
  const std::string opcode = std::move(words.front());
  words.erase(words.begin());
  return find_opcode(opcode, words);
}

} // namespace ladder::program
