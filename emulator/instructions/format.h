// printf formatting, with arguments fetched one at a time from the emulated program's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ladder::instructions {

struct FormatSource {
  std::function<std::uint64_t(unsigned bytes)> take;        ///< fetches the next argument, 4 or 8 bytes
  std::function<std::string(std::uint64_t address)> string; ///< reads the string at an address
};

/// Appends the formatted text to `output` and returns the number of arguments used. Supports flags, width,
/// precision (also `*`), the sizes hh, h, l, ll, j, z, t and the conversions c d i o u x X p e E f F g G a A
/// s % ("Formatted Output" of the CUDA C++ Programming Guide); copies anything else verbatim.
int format_text(std::string_view format, const FormatSource &source, std::string &output);

} // namespace ladder::instructions
