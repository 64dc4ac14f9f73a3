// What the emulator uses of C++20 and of GCC that emscripten 3.1 (clang 14 with its libc++) does not have
// yet. Included first in every file of the WebAssembly build.
#pragma once

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstdlib>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

namespace std {

template <class To, class From>
  requires(sizeof(To) == sizeof(From) && is_trivially_copyable_v<To> && is_trivially_copyable_v<From>)
constexpr To bit_cast(const From &from) noexcept {
  return __builtin_bit_cast(To, from);
}

namespace ranges {

template <class Range, class Value, class Projection = identity>
constexpr auto find(Range &&range, const Value &value, Projection projection = {}) {
  return std::find_if(std::begin(range), std::end(range),
                      [&](const auto &one) { return std::invoke(projection, one) == value; });
}
template <class Range, class Value, class Projection = identity>
constexpr auto count(Range &&range, const Value &value, Projection projection = {}) {
  return std::count_if(std::begin(range), std::end(range),
                       [&](const auto &one) { return std::invoke(projection, one) == value; });
}
template <class Range, class Less = less<>, class Projection = identity>
constexpr auto max_element(Range &&range, Less less = {}, Projection projection = {}) {
  return std::max_element(std::begin(range), std::end(range), [&](const auto &one, const auto &other) {
    return std::invoke(less, std::invoke(projection, one), std::invoke(projection, other));
  });
}
template <class Range, class Test> constexpr auto find_if(Range &&range, Test test) {
  return std::find_if(std::begin(range), std::end(range), std::move(test));
}
template <class Range, class Test> constexpr bool all_of(Range &&range, Test test) {
  return std::all_of(std::begin(range), std::end(range), std::move(test));
}
template <class Range, class Test> constexpr bool any_of(Range &&range, Test test) {
  return std::any_of(std::begin(range), std::end(range), std::move(test));
}
template <class Range, class Test, class Projection = identity>
constexpr bool none_of(Range &&range, Test test, Projection projection = {}) {
  return std::none_of(std::begin(range), std::end(range),
                      [&](const auto &one) { return std::invoke(test, std::invoke(projection, one)); });
}

template <class Range, class Value> constexpr void fill(Range &&range, const Value &value) {
  std::fill(std::begin(range), std::end(range), value);
}

} // namespace ranges

inline strong_ordering operator<=>(const string &a, const string &b) { return a.compare(b) <=> 0; }

inline from_chars_result from_chars(const char *begin, const char *end, double &value) {
  const string text(begin, end);
  char *rest = nullptr;
  value = strtod(text.c_str(), &rest);
  const bool is_number = rest != text.c_str();
  return {begin + (rest - text.c_str()), is_number ? errc() : errc::invalid_argument};
}

/// Blocks run on one thread, so none is ever started.
class jthread {
public:
  template <class Function> explicit jthread(Function &&) { abort(); }
};

} // namespace std

/// GCC's shuffle of two vectors; with constant places it becomes one instruction.
template <class Vector, class Places>
[[gnu::always_inline]] inline Vector __builtin_shuffle(Vector a, Vector b, Places places) {
  constexpr int kLanes = int(sizeof(Vector) / sizeof(a[0]));
  Vector result;
  for (int i = 0; i < kLanes; ++i)
    result[i] = places[i] < kLanes ? a[places[i]] : b[places[i] - kLanes];
  return result;
}
