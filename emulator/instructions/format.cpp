#include "instructions/format.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace ladder::instructions {

namespace {

/// Cap on width and precision: a wild `*` must not exhaust memory.
constexpr int kLongestField = 4096;

struct Specification {
  std::string flags;
  int width = -1, precision = -1;
  std::string_view size;
  char conversion = 0;

  std::string text(const char *with_size) const {
    std::string spec(1, '%');
    spec += flags;
    if (width >= 0)
      spec += std::to_string(width);
    if (precision >= 0)
      spec.append(1, '.') += std::to_string(precision);
    spec += with_size;
    spec += conversion;
    return spec;
  }
};

template <typename T> void print(std::string &output, const std::string &spec, T value) {
  // The format is assembled from parsed parts and matches the argument's type.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  const int length = std::snprintf(nullptr, 0, spec.c_str(), value);
  if (length <= 0)
    return;
  const std::size_t begin = output.size();
  output.resize(begin + std::size_t(length) + 1);
  std::snprintf(output.data() + begin, std::size_t(length) + 1, spec.c_str(), value);
  output.pop_back();
#pragma GCC diagnostic pop
}

long long sized_signed(std::uint64_t bits, std::string_view size) {
  if (size == "hh")
    return static_cast<signed char>(bits);
  if (size == "h")
    return static_cast<short>(bits);
  return size.empty() ? static_cast<int>(bits) : static_cast<long long>(bits);
}

unsigned long long sized_unsigned(std::uint64_t bits, std::string_view size) {
  if (size == "hh")
    return static_cast<unsigned char>(bits);
  if (size == "h")
    return static_cast<unsigned short>(bits);
  return size.empty() ? static_cast<unsigned>(bits) : bits;
}

} // namespace

int format_text(std::string_view format, const FormatSource &source, std::string &output) {
  int used = 0;
  const auto take = [&](unsigned bytes) {
    ++used;
    return source.take(bytes);
  };
  std::size_t at = 0;
  const auto peek = [&] { return at < format.size() ? format[at] : '\0'; };
  /// A number or `*`; -1 if there is neither.
  const auto number = [&]() -> int {
    if (peek() == '*') {
      ++at;
      return static_cast<int>(take(4));
    }
    int value = -1;
    for (; peek() >= '0' && peek() <= '9'; ++at)
      value = std::min((value < 0 ? 0 : value) * 10 + (peek() - '0'), kLongestField);
    return value;
  };

  while (at < format.size()) {
    const std::size_t begin = at;
    if (format[at++] != '%') {
      output += format[begin];
      continue;
    }
    Specification spec;
    while (peek() && std::string_view("-+ #0").find(peek()) != std::string_view::npos)
      spec.flags += format[at++];
    const bool width_given = peek() == '*';
    spec.width = number();
    if (width_given && spec.width < 0) { // same as the flag '-' with a positive width
      spec.flags += '-';
      spec.width = spec.width == -spec.width ? 0 : -spec.width;
    }
    spec.width = std::min(spec.width, kLongestField);
    if (peek() == '.') {
      ++at;
      const bool precision_given = peek() == '*';
      spec.precision = number();
      if (!precision_given)
        spec.precision = std::max(spec.precision, 0);
      spec.precision = std::clamp(spec.precision, -1, kLongestField);
    }
    const std::size_t size_begin = at;
    while (peek() && std::string_view("hljztL").find(peek()) != std::string_view::npos)
      ++at;
    spec.size = format.substr(size_begin, at - size_begin);
    spec.conversion = peek();
    ++at;
    const unsigned integer_bytes = spec.size.empty() || spec.size.front() == 'h' ? 4 : 8;
    switch (spec.conversion) {
    case 'd':
    case 'i':
      print(output, spec.text("ll"), sized_signed(take(integer_bytes), spec.size));
      break;
    case 'o':
    case 'u':
    case 'x':
    case 'X':
      print(output, spec.text("ll"), sized_unsigned(take(integer_bytes), spec.size));
      break;
    case 'c': {
      const auto c = static_cast<int>(take(4));
      if (c == 0)
        output += '\0';
      else
        print(output, spec.text(""), c);
      break;
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      print(output, spec.text(""), std::bit_cast<double>(take(8)));
      break;
    case 'p':
      print(output, spec.text(""), reinterpret_cast<const void *>(take(8)));
      break;
    case 's': {
      const std::string text = source.string(take(8));
      print(output, spec.text(""), text.c_str());
      break;
    }
    case '%':
      output += '%';
      break;
    default:
      at = std::min(at, format.size());
      output += format.substr(begin, at - begin);
    }
  }
  return used;
}

} // namespace ladder::instructions
