// The operations of atom, red and bulk reductions on a value in memory.
#pragma once

#include "instructions/half_type.h"
#include "ptx/ast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace ladder::instructions {

// An operation maps (value in memory, b, c) to the new value, all as bits of the type.

struct And {
  template <typename T> static T apply(T old, T b, T, bool) { return old & b; }
};
struct Or {
  template <typename T> static T apply(T old, T b, T, bool) { return old | b; }
};
struct Xor {
  template <typename T> static T apply(T old, T b, T, bool) { return old ^ b; }
};
struct Exchange {
  template <typename T> static T apply(T, T b, T, bool) { return b; }
};
struct CompareAndSwap {
  template <typename T> static T apply(T old, T b, T c, bool) { return old == b ? c : old; }
};
struct Increment {
  template <typename T> static T apply(T old, T b, T, bool) { return old >= b ? 0 : old + 1; }
};
struct Decrement {
  template <typename T> static T apply(T old, T b, T, bool) { return old == 0 || old > b ? b : old - 1; }
};
struct Add {
  template <typename T> static T apply(T old, T b, T, bool) { return old + b; }
};
template <typename Value> struct Min {
  template <typename T> static T apply(T old, T b, T, bool) { return T(std::min(Value(old), Value(b))); }
};
template <typename Value> struct Max {
  template <typename T> static T apply(T old, T b, T, bool) { return T(std::max(Value(old), Value(b))); }
};

inline float flush(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

struct AddF32 {
  /// Global memory flushes subnormal inputs and results to zero; shared memory does not.
  static std::uint32_t apply(std::uint32_t old, std::uint32_t b, std::uint32_t, bool in_shared) {
    const float x = std::bit_cast<float>(old), y = std::bit_cast<float>(b);
    return std::bit_cast<std::uint32_t>(in_shared ? x + y : flush(flush(x) + flush(y)));
  }
};
struct AddF64 {
  static std::uint64_t apply(std::uint64_t old, std::uint64_t b, std::uint64_t, bool) {
    return std::bit_cast<std::uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
  }
};

// Rounding the sum of two 16-bit floats to f32 first is harmless: 24 bits are at least 2 * 11 + 2.
template <typename Format> struct AddHalf {
  static std::uint16_t apply(std::uint16_t old, std::uint16_t b, std::uint16_t, bool) {
    return std::uint16_t(Format::from_float(Format::to_float(old) + Format::to_float(b)));
  }
};
template <typename Format> struct MinHalf {
  static std::uint16_t apply(std::uint16_t old, std::uint16_t b, std::uint16_t, bool) {
    return std::uint16_t(Format::from_float(std::fmin(Format::to_float(old), Format::to_float(b))));
  }
};
template <typename Format> struct MaxHalf {
  static std::uint16_t apply(std::uint16_t old, std::uint16_t b, std::uint16_t, bool) {
    return std::uint16_t(Format::from_float(std::fmax(Format::to_float(old), Format::to_float(b))));
  }
};
template <typename One> struct Packed {
  static std::uint32_t apply(std::uint32_t old, std::uint32_t b, std::uint32_t, bool in_shared) {
    const std::uint32_t low = One::apply(std::uint16_t(old), std::uint16_t(b), 0, in_shared);
    const std::uint32_t high = One::apply(std::uint16_t(old >> 16), std::uint16_t(b >> 16), 0, in_shared);
    return low | high << 16;
  }
};

/// Use::of<T, Operation> for an operation on the bits T; a null pointer if the type does not support it.
template <typename Use, typename T> typename Use::Result bits_operation(std::string_view operation) {
  if (operation == "and")
    return Use::template of<T, And>;
  if (operation == "or")
    return Use::template of<T, Or>;
  if (operation == "xor")
    return Use::template of<T, Xor>;
  if (operation == "exch")
    return Use::template of<T, Exchange>;
  if (operation == "cas")
    return Use::template of<T, CompareAndSwap>;
  return nullptr;
}

template <typename Use, typename Value> typename Use::Result integer_operation(std::string_view operation) {
  using T = std::make_unsigned_t<Value>;
  if (operation == "add")
    return Use::template of<T, Add>;
  if (operation == "min")
    return Use::template of<T, Min<Value>>;
  if (operation == "max")
    return Use::template of<T, Max<Value>>;
  if constexpr (std::is_same_v<Value, std::uint32_t>) {
    if (operation == "inc")
      return Use::template of<T, Increment>;
    if (operation == "dec")
      return Use::template of<T, Decrement>;
  }
  return bits_operation<Use, T>(operation);
}

template <typename Use, typename T, typename Sum, typename Least, typename Most>
typename Use::Result half_operation(std::string_view operation) {
  if (operation == "add")
    return Use::template of<T, Sum>;
  if (operation == "min")
    return Use::template of<T, Least>;
  if (operation == "max")
    return Use::template of<T, Most>;
  return nullptr;
}

template <typename Use, typename Format>
typename Use::Result half_operation(std::string_view operation, bool packed) {
  using S = AddHalf<Format>;
  using L = MinHalf<Format>;
  using M = MaxHalf<Format>;
  return packed ? half_operation<Use, std::uint32_t, Packed<S>, Packed<L>, Packed<M>>(operation)
                : half_operation<Use, std::uint16_t, S, L, M>(operation);
}

/// The same for all types that atom has.
template <typename Use> typename Use::Result find_operation(std::string_view operation, ptx::Type type) {
  using ptx::Type;
  switch (type) {
  case Type::b16:
    return operation == "cas" || operation == "exch" ? bits_operation<Use, std::uint16_t>(operation)
                                                     : nullptr;
  case Type::b32:
    return bits_operation<Use, std::uint32_t>(operation);
  case Type::b64:
    return bits_operation<Use, std::uint64_t>(operation);
  case Type::u32:
    return integer_operation<Use, std::uint32_t>(operation);
  case Type::s32:
    return integer_operation<Use, std::int32_t>(operation);
  case Type::u64:
    return integer_operation<Use, std::uint64_t>(operation);
  case Type::s64:
    return integer_operation<Use, std::int64_t>(operation);
  case Type::f32:
    return operation == "add" ? Use::template of<std::uint32_t, AddF32> : nullptr;
  case Type::f64:
    return operation == "add" ? Use::template of<std::uint64_t, AddF64> : nullptr;
  case Type::f16:
  case Type::f16x2:
    return half_operation<Use, Half>(operation, type == Type::f16x2);
  case Type::bf16:
  case Type::bf16x2:
    return half_operation<Use, BFloat>(operation, type == Type::bf16x2);
  default:
    return nullptr;
  }
}

} // namespace ladder::instructions
