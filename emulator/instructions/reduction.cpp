#include "instructions/reduction.h"

#include "instructions/half_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace ladder::instructions {

namespace {

using machine::Combine;
using ptx::Type;

template <typename T, auto Operation>
void combine(std::uint8_t *to, const std::uint8_t *from, std::size_t bytes) {
  auto *place = reinterpret_cast<T *>(to);
  for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T), ++place) {
    T value;
    std::memcpy(&value, from + i, sizeof value);
    T old = __atomic_load_n(place, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(place, &old, Operation(old, value), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
  }
}

template <typename T> Combine bits_reduction(std::string_view operation) {
  if (operation == "and")
    return combine<T, [](T a, T b) { return T(a & b); }>;
  if (operation == "or")
    return combine<T, [](T a, T b) { return T(a | b); }>;
  if (operation == "xor")
    return combine<T, [](T a, T b) { return T(a ^ b); }>;
  return nullptr;
}

template <typename Value> Combine integer_reduction(std::string_view operation) {
  using T = std::make_unsigned_t<Value>;
  if (operation == "add")
    return combine<T, [](T a, T b) { return T(a + b); }>;
  if (operation == "min")
    return combine<T, [](T a, T b) { return T(std::min(Value(a), Value(b))); }>;
  if (operation == "max")
    return combine<T, [](T a, T b) { return T(std::max(Value(a), Value(b))); }>;
  if constexpr (std::is_same_v<Value, std::uint32_t>) {
    if (operation == "inc")
      return combine<T, [](T a, T b) { return b <= a ? T(0) : a + 1; }>;
    if (operation == "dec")
      return combine<T, [](T a, T b) { return a == 0 || b < a ? b : a - 1; }>;
  }
  return bits_reduction<T>(operation);
}

template <typename Float, typename T> Combine float_reduction(std::string_view operation) {
  if (operation == "add")
    return combine<T, [](T a, T b) {
      return std::bit_cast<T>(std::bit_cast<Float>(a) + std::bit_cast<Float>(b));
    }>;
  return nullptr;
}

template <typename Format> Combine half_reduction(std::string_view operation) {
  using T = std::uint16_t;
  if (operation == "add")
    return combine<T,
                   [](T a, T b) { return T(Format::from_float(Format::to_float(a) + Format::to_float(b))); }>;
  if (operation == "min")
    return combine<T, [](T a, T b) {
      return T(Format::from_float(std::fmin(Format::to_float(a), Format::to_float(b))));
    }>;
  if (operation == "max")
    return combine<T, [](T a, T b) {
      return T(Format::from_float(std::fmax(Format::to_float(a), Format::to_float(b))));
    }>;
  return nullptr;
}

} // namespace

Combine find_reduction(std::string_view operation, Type type) {
  switch (type) {
  case Type::b32:
    return bits_reduction<std::uint32_t>(operation);
  case Type::b64:
    return bits_reduction<std::uint64_t>(operation);
  case Type::u8:
    return integer_reduction<std::uint8_t>(operation);
  case Type::u16:
    return integer_reduction<std::uint16_t>(operation);
  case Type::u32:
    return integer_reduction<std::uint32_t>(operation);
  case Type::s32:
    return integer_reduction<std::int32_t>(operation);
  case Type::u64:
    return integer_reduction<std::uint64_t>(operation);
  case Type::s64:
    return integer_reduction<std::int64_t>(operation);
  case Type::f16:
    return half_reduction<Half>(operation);
  case Type::bf16:
    return half_reduction<BFloat>(operation);
  case Type::f32:
    return float_reduction<float, std::uint32_t>(operation);
  case Type::f64:
    return float_reduction<double, std::uint64_t>(operation);
  default:
    return nullptr;
  }
}

} // namespace ladder::instructions
