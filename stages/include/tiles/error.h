// What the host's part of the tile library throws. The exceptions of <stdexcept> would bring <string>, which
// takes a fifth of the time that a kernel takes to compile.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <exception>

namespace tiles {

namespace detail {

struct Text {
  char chars[300];
};

/// A text that is made as printf makes it, cut off at the end of Text.
__attribute__((format(printf, 1, 2))) inline Text text(const char *format, ...) {
  Text made;
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(made.chars, sizeof made.chars, format, values);
  va_end(values);
  return made;
}

} // namespace detail

class Error : public std::exception {
public:
  explicit Error(const detail::Text &text) : text_(text) {}
  const char *what() const noexcept override { return text_.chars; }

private:
  detail::Text text_;
};

/// What the caller asks for cannot be done.
class Unsupported : public Error {
public:
  using Error::Error;
};

} // namespace tiles
