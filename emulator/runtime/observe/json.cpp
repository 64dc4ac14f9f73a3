#include "runtime/observe/json.h"

#include <cstdio>

namespace ladder::runtime {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string place_members(const machine::SourcePlace &place) {
  return "\"file\": " + json_string(place.file) + ", \"line\": " + std::to_string(place.line) +
         ", \"kernel_file\": " + json_string(place.kernel_file) +
         ", \"kernel_line\": " + std::to_string(place.kernel_line) +
         ", \"own_line\": " + std::to_string(place.own_line);
}

} // namespace ladder::runtime
