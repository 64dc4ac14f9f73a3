// JSON output.
#pragma once

#include "machine/source_place.h"

#include <string>
#include <string_view>

namespace ladder::runtime {

/// Escapes and quotes a string.
std::string json_string(std::string_view text);

/// text(item) of each item, with separators.
template <typename Items, typename Text>
std::string joined(const Items &items, std::string_view separator, Text text) {
  std::string all;
  for (const auto &item : items)
    all.append(all.empty() ? "" : separator).append(text(item));
  return all;
}

/// The members of an object that describe a place.
std::string place_members(const machine::SourcePlace &place);

} // namespace ladder::runtime
