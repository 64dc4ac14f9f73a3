// The functions of errors.h, for the one file of a program that is not compiled with each kernel.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>

#include "ladder/errors.h"

namespace ladder {

void refuse(const char *format, ...) {
  char text[500];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  throw std::invalid_argument(text);
}

void refuse_size(const char *name, int size, const int *sizes, int count) {
  std::string all;
  for (const int one : std::span(sizes, count))
    all += (all.empty() ? "" : ", ") + std::to_string(one);
  throw std::invalid_argument(std::string(name) + " must be one of " + all + ", not " + std::to_string(size));
}

void fail(const char *what, const char *why) { throw std::runtime_error(std::string(what) + ": " + why); }

} // namespace ladder
