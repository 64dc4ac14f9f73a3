// The little of JSON that is written here.
#pragma once

#include <string>
#include <string_view>

namespace ladder::runtime {

/// A string with its quotes.
std::string quoted(std::string_view text);

} // namespace ladder::runtime
