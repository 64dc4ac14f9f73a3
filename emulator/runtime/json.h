// JSON output.
#pragma once

#include <string>
#include <string_view>

namespace ladder::runtime {

/// Escapes and quotes a string.
std::string quoted(std::string_view text);

} // namespace ladder::runtime
