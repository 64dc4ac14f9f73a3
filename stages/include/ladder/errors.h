// How a rung's host part throws. definitions.h has the functions and is compiled once, with the
// binding: <string> and <stdexcept> would take a third of the time that a kernel takes to compile.
#pragma once

namespace ladder {

/// Throws std::invalid_argument with a text that is made as printf makes it.
[[noreturn]] __attribute__((format(printf, 1, 2))) void refuse(const char *format, ...);

/// Throws std::invalid_argument: `name` must be one of the `count` sizes, not `size`.
[[noreturn]] void refuse_size(const char *name, int size, const int *sizes, int count);

/// Throws std::runtime_error with the text "what: why".
[[noreturn]] void fail(const char *what, const char *why);

} // namespace ladder
