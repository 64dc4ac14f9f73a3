#include "program/special.h"

#include <unordered_map>

namespace ladder::program {

std::optional<Special> special_from_name(std::string_view name) {
  static const std::unordered_map<std::string_view, Special> kNames = {
#define SPECIAL(name, text, value) {text, Special::name},
#include "program/specials.def"
  };
  const auto found = kNames.find(name);
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

bool is_zero_special(std::string_view name) {
  if (name == "%current_graph_exec")
    return true;
  constexpr std::string_view kEnvironment = "%envreg";
  if (!name.starts_with(kEnvironment))
    return false;
  name.remove_prefix(kEnvironment.size());
  if (name.empty() || name.size() > 2)
    return false;
  int number = 0;
  for (char c : name) {
    if (c < '0' || c > '9')
      return false;
    number = number * 10 + (c - '0');
  }
  return number < 32;
}

} // namespace ladder::program
