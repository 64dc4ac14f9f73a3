// "Data Movement and Conversion Instructions": cvt.
#include "instructions/convert_integers.h"
#include "instructions/elementwise.h"
#include "instructions/float8_type.h"

#include <limits>
#include <optional>

namespace ladder::instructions {

namespace {

// Flags of a conversion.
enum : std::uint32_t {
  kRoundingMask = 3, ///< a Rounding
  kFtz = 4,
  kSat = 8,
  kRelu = 16,
  kSatFinite = 32,
};

std::uint32_t flags_of(const Binder &b) {
  return static_cast<std::uint32_t>(rounding_of(b).value_or(Rounding::nearest)) | (b.has("ftz") ? kFtz : 0u) |
         (b.has("sat") ? kSat : 0u) | (b.has("relu") ? kRelu : 0u) | (b.has("satfinite") ? kSatFinite : 0u);
}

/// Correction, 0 or 1, that a rounding mode applies to a result rounded to nearest: `less` if it lies above
/// the exact value, `more` if below. In the type of the corrected value, so that loops over lanes vectorise.
template <class Number> struct Direction {
  explicit Direction(std::uint32_t flags) {
    const auto mode = static_cast<Rounding>(flags & kRoundingMask);
    less_positive = mode == Rounding::down || mode == Rounding::zero;
    less_negative = mode == Rounding::down;
    more_positive = mode == Rounding::up;
    more_negative = mode == Rounding::up || mode == Rounding::zero;
  }
  // Read both regardless of sign: a conditional load would not vectorise.
  Number less(bool negative) const {
    const Number one = less_negative, other = less_positive;
    return negative ? one : other;
  }
  Number more(bool negative) const {
    const Number one = more_negative, other = more_positive;
    return negative ? one : other;
  }
  Number less_positive, less_negative, more_positive, more_negative;
};

/// .ftz as a mask: a branch on the modifier would not vectorise.
class Flush {
public:
  explicit Flush(bool ftz) : kept_of_subnormals_(ftz ? 0x80000000u : ~0u) {}
  double operator()(double value) const { return value; }
  float operator()(float value) const {
    const std::uint32_t bits = float_bits(value);
    return float_from((bits & 0x7f800000u) == 0 ? bits & kept_of_subnormals_ : bits);
  }

private:
  std::uint32_t kept_of_subnormals_;
};

template <class Float> Float round_to_integral(Float value, const Direction<Float> &direction) {
  const Float nearest = round_to_even(value);
  const Float less = direction.less(value < 0), more = direction.more(value < 0);
  const Float rounded = nearest - (nearest > value ? less : Float(0)) + (nearest < value ? more : Float(0));
  return value != value ? value : copy_sign(rounded, value);
}

// --- sources as floats: exact, or rounded to odd ----------------------------------------------------------

/// Converts an integer to a double that rounds like it: beyond 53 bits, the last bit is sticky.
template <class T> double odd_double(T value) {
  if constexpr (sizeof(T) == 8) {
    const bool large = value >= T(1) << 53 || (std::is_signed_v<T> && value <= -(T(1) << 53));
    const T sticky = static_cast<T>((value >> 11 << 11) | ((value & 0x7ff) != 0 ? T(1) << 11 : T(0)));
    return static_cast<double>(large ? sticky : value);
  } else {
    return static_cast<double>(value);
  }
}

template <class T> float widen(T value) {
  if constexpr (std::is_same_v<T, F16>)
    return Half::to_float(to_lane(value));
  else if constexpr (std::is_same_v<T, BF16>)
    return BFloat::to_float(to_lane(value));
  else if constexpr (std::is_same_v<T, float>)
    return value;
  else if constexpr (std::is_same_v<T, double>)
    return to_odd(value);
  else
    return to_odd(odd_double(value));
}

/// Widens half-precision sources to float; leaves others alone.
template <class T> auto to_arithmetic(T value) {
  if constexpr (std::is_enum_v<T>)
    return widen(value);
  else
    return value;
}

template <class T> using Arithmetic = decltype(to_arithmetic(T{}));

// --- to half precision -------------------------------------------------------------------------------------

template <class Format> using FormatBits = std::conditional_t<std::is_same_v<Format, Half>, F16, BF16>;

/// Round to nearest without modifiers, the form nearly all programs use.
template <class Format> struct ToHalfNearest {
  FormatBits<Format> operator()(float value) const { return FormatBits<Format>(Format::from_float(value)); }
};

template <class Format> struct ToHalf {
  explicit ToHalf(const Instruction &in)
      : direction_(in.flags), flush_(in.flags & kFtz), sat_(in.flags & kSat), relu_(in.flags & kRelu),
        satfinite_(in.flags & kSatFinite) {}

  template <class T> FormatBits<Format> operator()(T source) const {
    return FormatBits<Format>(bits(widen(source)));
  }

  std::uint32_t bits(float value) const {
    value = flush_(value);
    value = sat_ ? saturate(value) : value;
    std::uint32_t h = Format::from_float(value);
    const float rounded = Format::to_float(h & 0x7fffu), magnitude = absolute(value);
    // For a negative number, more means a smaller magnitude.
    const std::uint32_t less = direction_.less(value < 0), more = direction_.more(value < 0);
    h -= rounded > magnitude ? (value < 0 ? more : less) : 0;
    h += rounded < magnitude ? (value < 0 ? less : more) : 0;
    h = satfinite_ && (h & 0x7fffu) == Format::kInfinity ? h - 1 : h;
    return relu_ && (h & 0x8000u) ? 0 : h;
  }

private:
  Direction<std::uint32_t> direction_;
  Flush flush_;
  bool sat_, relu_, satfinite_;
};

template <class Format> struct PackNearest {
  std::uint32_t operator()(float high, float low) const {
    return Format::from_float(high) << 16 | Format::from_float(low);
  }
};
template <class Format> struct Pack : ToHalf<Format> {
  using ToHalf<Format>::ToHalf;
  std::uint32_t operator()(float high, float low) const { return this->bits(high) << 16 | this->bits(low); }
};

using Sources = Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::int8_t, std::int16_t,
                      std::int32_t, std::int64_t, F16, BF16, float, double>;

template <class Format> bool bind_to_half(Binder &b, ptx::Type from) {
  using Bits = FormatBits<Format>;
  if (from == ptx::Type::f32 && (b.out.flags & ~kFtz) == 0) // f16 rounds a subnormal float to zero anyway
    if (std::is_same_v<Format, Half> || b.out.flags == 0)
      return bind_elementwise<ToHalfNearest<Format>, Bits, float>(b);
  return with_type(Sources{}, from, [&]<class S>() { return bind_elementwise<ToHalf<Format>, Bits, S>(b); });
}

template <class Format> bool bind_pack(Binder &b) {
  if (b.out.flags == 0)
    return bind_elementwise<PackNearest<Format>, std::uint32_t, float, float>(b);
  return bind_elementwise<Pack<Format>, std::uint32_t, float, float>(b);
}

// --- to tf32 -----------------------------------------------------------------------------------------------

/// Keeps the upper 19 bits of a float. .rna rounds ties away from zero.
struct ToTf32 {
  explicit ToTf32(const Instruction &in)
      : ties_away_(in.imm), to_zero_(in.flags & kRoundingMask), relu_(in.flags & kRelu),
        satfinite_(in.flags & kSatFinite) {}
  std::uint32_t operator()(float value) const {
    const std::uint32_t bits = float_bits(value);
    const std::uint32_t nan = ties_away_ ? bits & 0xffffe000u : 0x7fffe000u;
    const std::uint32_t half = to_zero_ ? 0u : ties_away_ ? 0x1000u : 0xfffu + (bits >> 13 & 1u);
    std::uint32_t rounded = (bits + half) & 0xffffe000u;
    rounded = satfinite_ && (rounded & 0x7fffffffu) == 0x7f800000u ? (rounded & 0x80000000u) | 0x7f7fe000u
                                                                   : rounded;
    rounded = relu_ && (bits >> 31) ? 0u : rounded;
    return value != value ? nan : rounded;
  }

private:
  bool ties_away_, to_zero_, relu_, satfinite_;
};

bool bind_to_tf32(Binder &b) {
  since(b, b.has("rna") && !b.has("satfinite") ? 80 : 90);
  b.out.imm = b.has("rna");
  return bind_elementwise<ToTf32, std::uint32_t, float>(b);
}

// --- 8-bit floats ------------------------------------------------------------------------------------------

template <class Format> struct Float8Pair {
  static constexpr bool is_scalar = true;
  explicit Float8Pair(const Instruction &in) : relu_(in.flags & kRelu) {}
  std::uint16_t operator()(float high, float low) const {
    return static_cast<std::uint16_t>(Format::from_float(high, relu_) << 8 | Format::from_float(low, relu_));
  }
  std::uint16_t operator()(std::uint32_t halves) const {
    return (*this)(Half::to_float(halves >> 16), Half::to_float(halves & 0xffffu));
  }

private:
  bool relu_;
};

template <class Format> struct Float8ToHalves {
  static constexpr bool is_scalar = true;
  explicit Float8ToHalves(const Instruction &in) : relu_(in.flags & kRelu) {}
  std::uint32_t operator()(std::uint16_t pair) const { return one(pair >> 8) << 16 | one(pair & 0xffu); }

private:
  std::uint32_t one(std::uint32_t bits) const {
    const float value = Format::to_float(bits);
    return Half::from_float(relu_ && value <= 0 ? 0.0f : value);
  }
  bool relu_;
};

template <class Format> bool bind_to_float8(Binder &b, std::string_view from) {
  since(b, 89);
  if (!b.has("rn") || !b.has("satfinite"))
    b.unsupported("needs .rn.satfinite");
  if (from == "f32")
    return bind_elementwise<Float8Pair<Format>, std::uint16_t, float, float>(b);
  if (from == "f16x2")
    return bind_elementwise<Float8Pair<Format>, std::uint16_t, std::uint32_t>(b);
  b.unsupported("a conversion between these types");
}

template <class Format> bool bind_from_float8(Binder &b, std::string_view to) {
  since(b, 89);
  if (to != "f16x2")
    b.unsupported("a conversion between these types");
  return bind_elementwise<Float8ToHalves<Format>, std::uint32_t, std::uint16_t>(b);
}

// --- integers to float and double --------------------------------------------------------------------------

template <class To, bool Sat> struct FromInteger {
  template <class T> To operator()(T value) const {
    const To result = static_cast<To>(value);
    return Sat ? saturate(result) : result;
  }
};

template <class To> bool bind_integer_to_float(Binder &b, ptx::Type from) {
  using Integers = Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::int8_t, std::int16_t,
                         std::int32_t, std::int64_t>;
  return with_type(Integers{}, from, [&]<class T>() {
    bind_operands<To, T>(b);
    const bool sat = b.out.flags & kSat;
    const auto rounding = b.out.flags & kRoundingMask;
    b.out.flags = rounding;
    if (rounding == 0)
      b.out.execute =
          sat ? elementwise<FromInteger<To, true>, To, T> : elementwise<FromInteger<To, false>, To, T>;
    else
      b.out.execute = sat ? elementwise_rounded<FromInteger<To, true>, To, T>
                          : elementwise_rounded<FromInteger<To, false>, To, T>;
    return true;
  });
}

// --- floats to integers ------------------------------------------------------------------------------------

/// Truncates to a T, clamped to its range; 0 for a NaN.
template <class T, class Float> T saturating_cast(Float value) {
  using Limits = std::numeric_limits<T>;
  constexpr int kBits = Limits::digits; // excluding the sign
  constexpr Float kEnd = static_cast<Float>(std::uint64_t(1) << (kBits - 1)) * 2;
  constexpr Float kUlp = kEnd * std::numeric_limits<Float>::epsilon() / 2;
  constexpr Float kLast = kUlp > 1 ? kEnd - kUlp : kEnd - 1; // largest integer below kEnd
  constexpr Float kLowest = static_cast<Float>(Limits::min());
  Float inside = value < kLowest ? kLowest : value;
  inside = inside > kLast ? kLast : inside;
  inside = value == value ? inside : Float(0);
  T result;
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    // Use a signed conversion, which every CPU has.
    const bool high = inside >= Float(0x1p31);
    const auto low = static_cast<std::int32_t>(inside - (high ? Float(0x1p31) : Float(0)));
    result = static_cast<std::uint32_t>(low) ^ (high ? 0x80000000u : 0u);
  } else {
    result = static_cast<T>(inside);
  }
  return value >= kEnd ? Limits::max() : result;
}

/// Flags hold a rounding mode unless Truncates; imm: mask of the destination register's bits.
template <class T, class S, bool Truncates> struct ToInteger {
  explicit ToInteger(const Instruction &in)
      : direction_(in.flags), flush_(in.flags & kFtz), mask_(static_cast<Lane<T>>(in.imm)) {}

  Lane<T> operator()(S source) const {
    // The hardware converts a NaN to zero, or to the sign bit if a 64-bit type is involved.
    constexpr bool kWide = sizeof(T) == 8 || std::is_same_v<S, double>;
    constexpr T kFromNaN = kWide ? static_cast<T>(std::make_unsigned_t<T>(1) << (8 * sizeof(T) - 1)) : T(0);
    const auto value = flush_(to_arithmetic(source));
    const T result = saturating_cast<T>(Truncates ? value : round_to_integral(value, direction_));
    return static_cast<Lane<T>>(value != value ? kFromNaN : result) & mask_;
  }

private:
  Direction<Arithmetic<S>> direction_;
  Flush flush_;
  Lane<T> mask_;
};

template <class T> bool bind_to_integer(Binder &b, ptx::Type from) {
  using Floats = Types<F16, BF16, float, double>;
  b.out.imm = static_cast<std::int64_t>(~std::uint64_t(0));
  const program::Operand &d = b.operand(0);
  if (d.kind == program::Operand::Kind::reg && ptx::type_bytes(d.reg.type) < 4)
    b.out.imm = (1 << bits_of_type(d.reg.type)) - 1;
  return with_type(Floats{}, from, [&]<class S>() {
    return rounding_of(b) == Rounding::zero ? bind_elementwise<ToInteger<T, S, true>, Lane<T>, S>(b)
                                            : bind_elementwise<ToInteger<T, S, false>, Lane<T>, S>(b);
  });
}

bool bind_float_to_integer(Binder &b, ptx::Type to, ptx::Type from) {
  using Integers = Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::int8_t, std::int16_t,
                         std::int32_t, std::int64_t>;
  if (!rounding_of(b))
    b.unsupported("a rounding mode is missing");
  b.out.flags &= ~kSat; // always saturates
  return with_type(Integers{}, to, [&]<class T>() { return bind_to_integer<T>(b, from); });
}

// --- floats to floats --------------------------------------------------------------------------------------

/// Converts between float and double, and from half precision; .ftz applies to float on either side.
template <class To> struct ToFloat {
  explicit ToFloat(const Instruction &in) : flush_(in.flags & kFtz), sat_(in.flags & kSat) {}
  template <class S> To operator()(S source) const {
    To value = flush_(static_cast<To>(flush_(to_arithmetic(source))));
    if constexpr (std::is_same_v<S, float> || std::is_same_v<S, F16>)
      value = canonical(value); // NaNs of other types keep their payload
    return sat_ ? saturate(value) : value;
  }

private:
  Flush flush_;
  bool sat_;
};
/// Like ToFloat, in the rounding mode in `flags` (elementwise_rounded); modifiers in `imm`.
struct NarrowDouble {
  explicit NarrowDouble(const Instruction &in) : flush_(in.imm & kFtz), sat_(in.imm & kSat) {}
  float operator()(double source) const {
    const float value = flush_(static_cast<float>(source));
    return sat_ ? saturate(value) : value;
  }

private:
  Flush flush_;
  bool sat_;
};

/// .rni .rzi .rmi .rpi: rounds to an integral value of the same type.
template <class T> struct ToIntegral {
  explicit ToIntegral(const Instruction &in)
      : direction_(in.flags), flush_(in.flags & kFtz), sat_(in.flags & kSat) {}
  T operator()(T source) const {
    const Arithmetic<T> value = flush_(to_arithmetic(source));
    const Arithmetic<T> integral = canonical(round_to_integral(value, direction_));
    const Arithmetic<T> result = sat_ ? saturate(integral) : integral;
    if constexpr (std::is_same_v<T, F16>)
      return F16(Half::from_float(result));
    else if constexpr (std::is_same_v<T, BF16>)
      return BF16(BFloat::from_float(result));
    else
      return result;
  }

private:
  Direction<Arithmetic<T>> direction_;
  Flush flush_;
  bool sat_;
};

bool rounds_to_integral(const Binder &b) {
  return b.has("rni") || b.has("rzi") || b.has("rmi") || b.has("rpi");
}

bool bind_float_to_float(Binder &b, ptx::Type to, ptx::Type from) {
  using ptx::Type;
  if (rounds_to_integral(b)) {
    if (to != from)
      b.unsupported("rounding to an integral value does not change the type");
    return with_type(Types<F16, BF16, float, double>{}, to,
                     [&]<class T>() { return bind_elementwise<ToIntegral<T>, T, T>(b); });
  }
  switch (to) {
  case Type::f16:
    return bind_to_half<Half>(b, from);
  case Type::bf16:
    return bind_to_half<BFloat>(b, from);
  case Type::f32:
    if (from == Type::f64 && b.out.flags & kRoundingMask) {
      bind_operands<float, double>(b);
      b.out.imm = b.out.flags;
      b.out.flags &= kRoundingMask;
      b.out.execute = elementwise_rounded<NarrowDouble, float, double>;
      return true;
    }
    return with_type(Types<F16, BF16, float, double>{}, from,
                     [&]<class S>() { return bind_elementwise<ToFloat<float>, float, S>(b); });
  default:
    return with_type(Types<F16, BF16, float, double>{}, from,
                     [&]<class S>() { return bind_elementwise<ToFloat<double>, double, S>(b); });
  }
}

// --- cvt ---------------------------------------------------------------------------------------------------

bool is_float(ptx::Type type) {
  using T = ptx::Type;
  return type == T::f16 || type == T::bf16 || type == T::f32 || type == T::f64;
}

bool bind_cvt(Binder &b) {
  using ptx::Type;
  if (b.has("pack"))
    return bind_integer_pack(b);
  only(b, {"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna", "ftz", "sat", "relu", "satfinite",
           "e4m3x2", "e5m2x2"});
  const auto &modifiers = b.source.modifiers;
  if (modifiers.size() < 2)
    b.unsupported("two types are missing");
  const std::string_view to_name = modifiers[modifiers.size() - 2], from_name = modifiers.back();
  b.out.flags = flags_of(b);
  if (to_name == "e4m3x2")
    return bind_to_float8<E4M3>(b, from_name);
  if (to_name == "e5m2x2")
    return bind_to_float8<E5M2>(b, from_name);
  if (from_name == "e4m3x2")
    return bind_from_float8<E4M3>(b, to_name);
  if (from_name == "e5m2x2")
    return bind_from_float8<E5M2>(b, to_name);
  const Type to = b.type(0), from = b.type(1);
  if (to == Type::tf32 && from == Type::f32)
    return bind_to_tf32(b);
  if ((to == Type::f16x2 || to == Type::bf16x2) && from == Type::f32) {
    since(b, 80);
    return to == Type::f16x2 ? bind_pack<Half>(b) : bind_pack<BFloat>(b);
  }
  if (to == Type::bf16 || from == Type::bf16) {
    since(b, to == Type::bf16 && from == Type::f32 ? 80 : 90);
    for (std::size_t i = 0; i < 2; ++i)
      if (ptx::type_bytes(b.type(i)) == 1 &&
          (b.operand(i).kind != program::Operand::Kind::reg || ptx::type_bytes(b.operand(i).reg.type) != 1))
        b.unsupported("with bf16, an 8-bit integer must be in an 8-bit register"); // ptxas has the same rule
  }
  if (is_integer(to) && is_integer(from))
    return bind_integer_to_integer(b, to, from);
  if (is_integer(from)) {
    switch (to) {
    case Type::f16:
      return bind_to_half<Half>(b, from);
    case Type::bf16:
      return bind_to_half<BFloat>(b, from);
    case Type::f32:
      return bind_integer_to_float<float>(b, from);
    case Type::f64:
      return bind_integer_to_float<double>(b, from);
    default:
      return false;
    }
  }
  if (is_integer(to) && is_float(from))
    return bind_float_to_integer(b, to, from);
  if (is_float(to) && is_float(from))
    return bind_float_to_float(b, to, from);
  return false;
}

constexpr TableEntry kTable[] = {
    {"cvt", bind_cvt},
};

} // namespace

std::span<const TableEntry> convert_table() { return kTable; }

} // namespace ladder::instructions
