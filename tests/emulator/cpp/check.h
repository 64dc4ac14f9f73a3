// Checks for the C++ tests: a failure is printed with its place; the program goes on and exits with 1.
#pragma once

#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace check {

inline int &failures() {
  static int count = 0;
  return count;
}

inline void report(const char *file, int line, const std::string &what) {
  ++failures();
  std::cerr << file << ":" << line << ": " << what << "\n";
}

template <typename A, typename B>
void equal(const A &actual, const B &expected, const char *text, const char *file, int line) {
  if (actual == expected)
    return;
  std::ostringstream out;
  out << text << " is " << actual << ", expected " << expected;
  report(file, line, out.str());
}

/// Reads a whole file; a missing one ends the test.
inline std::string read_file(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline int finish(const char *name) {
  std::cout << name << ": " << (failures() ? std::to_string(failures()) + " failed" : "passed") << "\n";
  return failures() ? 1 : 0;
}

} // namespace check

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition))                                                                                        \
      check::report(__FILE__, __LINE__, #condition);                                                         \
  } while (false)
#define CHECK_EQUAL(actual, expected) check::equal((actual), (expected), #actual, __FILE__, __LINE__)
/// Checks that `statement` throws an `Error` for which `condition` (over `error`) holds.
#define CHECK_THROWS(statement, Error, condition)                                                            \
  do {                                                                                                       \
    bool thrown = false;                                                                                     \
    try {                                                                                                    \
      statement;                                                                                             \
    } catch (const Error &error) {                                                                           \
      thrown = true;                                                                                         \
      if (!(condition))                                                                                      \
        check::report(__FILE__, __LINE__, std::string(#condition) + " does not hold: " + error.what());      \
    }                                                                                                        \
    if (!thrown)                                                                                             \
      check::report(__FILE__, __LINE__, #statement " does not throw " #Error);                               \
  } while (false)
