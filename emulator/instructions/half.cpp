// "Half Precision Floating Point Instructions": f16, f16x2, bf16 and bf16x2.
//
// Values are widened to float. There an operation is exact, or rounded such that rounding again to half
// precision gives the correctly rounded result.
#include "instructions/elementwise.h"
#include "instructions/float_type.h"

namespace ladder::instructions {

namespace {

// --- operations on values: Format is Half or BFloat --------------------------------------------------------

// A float has more than twice the bits, so rounding a sum twice equals rounding it once.
struct Add {
  template <class Format> static float apply(float a, float b) { return a + b; }
};
struct Sub {
  template <class Format> static float apply(float a, float b) { return a - b; }
};
struct Mul {
  template <class Format> static float apply(float a, float b) { return Format::multiply(a, b); }
};
struct Fma {
  template <class Format> static float apply(float a, float b, float c) {
    return Format::multiply_add(a, b, c);
  }
};
struct Ex2 {
  template <class Format> static float apply(float a) { return power_of_two(a); }
};
struct Tanh {
  static constexpr bool is_scalar = true;
  template <class Format> static float apply(float a) {
    return static_cast<float>(std::tanh(static_cast<double>(a)));
  }
};
template <class Extremum> struct Select {
  template <class Format> static float apply(float a, float b) { return Extremum{}(a, b); }
};

enum class Clamp { none, sat, relu };

/// Clamps negative results to zero; keeps NaN.
inline float relu(float value) { return value <= 0 ? 0.0f : value; }

/// Op with its modifiers, on the bits of one value.
template <class Format, class Op, bool Ftz, Clamp Clamped> struct OnBits {
  static constexpr bool is_scalar = ScalarOp<Op>;
  template <class... Bits> std::uint32_t operator()(Bits... bits) const {
    float result = flush_float(Op::template apply<Format>(Format::to_float(flush_half(bits))...));
    if constexpr (Clamped == Clamp::sat)
      result = saturate(result);
    if constexpr (Clamped == Clamp::relu)
      result = relu(result);
    return Format::from_float(result);
  }
  /// Flushes values that are subnormal before rounding, even if they would round to a normal number.
  static float flush_float(float value) {
    return Ftz && absolute(value) < 0x1p-14f ? copy_sign(0.0f, value) : value;
  }
  static std::uint32_t flush_half(std::uint32_t bits) {
    if constexpr (Ftz)
      return (bits & Format::kInfinity) == 0 ? bits & 0x8000u : bits;
    else
      return bits;
  }
};

struct Neg {
  static std::uint32_t apply(std::uint32_t a) { return a ^ 0x8000u; }
};
struct Abs {
  static std::uint32_t apply(std::uint32_t a) { return a & 0x7fffu; }
};
/// neg and abs change only the sign, but turn a NaN into the canonical one.
template <class Op, class Format, bool Ftz> struct OnSign {
  std::uint32_t operator()(std::uint32_t a) const {
    const std::uint32_t flushed = Ftz && (a & Format::kInfinity) == 0 ? a & 0x8000u : a;
    return (a & 0x7fffu) > Format::kInfinity ? Format::kNaN : Op::apply(flushed);
  }
};

/// Op on both halves of a register.
template <class Op> struct BothHalves {
  static constexpr bool is_scalar = ScalarOp<Op>;
  template <class... Bits> std::uint32_t operator()(Bits... bits) const {
    return Op{}((bits & 0xffffu)...) | Op{}((bits >> 16)...) << 16;
  }
};

// --- binding -----------------------------------------------------------------------------------------------

bool is_packed(ptx::Type type) { return type == ptx::Type::f16x2 || type == ptx::Type::bf16x2; }
bool is_bfloat(ptx::Type type) { return type == ptx::Type::bf16 || type == ptx::Type::bf16x2; }
bool is_half(ptx::Type type) { return type == ptx::Type::f16 || type == ptx::Type::f16x2 || is_bfloat(type); }

/// Binds Op (on bits) for a scalar or packed type.
template <class Op, int Arity> bool bind_scalar_or_packed(Binder &b) {
  return is_packed(b.type()) ? bind_arity<BothHalves<Op>, std::uint32_t, Arity>(b)
                             : bind_arity<Op, std::uint16_t, Arity>(b);
}

/// Binds Op (on floats) with the instruction's modifiers, of those that the opcode allows.
template <class Op, int Arity, bool MayBeSat = false, bool MayBeRelu = false> bool bind_format(Binder &b) {
  const auto clamped = [&]<Clamp C>() {
    // ex2 is the only bf16 instruction with .ftz, which has no effect: 2^x is 1 for any subnormal x.
    if (is_bfloat(b.type()))
      return bind_scalar_or_packed<OnBits<BFloat, Op, false, C>, Arity>(b);
    return with_flag(b.has("ftz"),
                     [&]<bool Ftz>() { return bind_scalar_or_packed<OnBits<Half, Op, Ftz, C>, Arity>(b); });
  };
  if constexpr (MayBeRelu)
    if (b.has("relu"))
      return clamped.template operator()<Clamp::relu>();
  if constexpr (MayBeSat) {
    if (b.has("sat") && is_bfloat(b.type()))
      b.unsupported(".sat is for f16");
    if (b.has("sat"))
      return clamped.template operator()<Clamp::sat>();
  }
  return clamped.template operator()<Clamp::none>();
}

template <class Op> bool bind_arithmetic(Binder &b) {
  if (!is_half(b.type()))
    return false;
  only(b, {"rn", "ftz", "sat"});
  if (is_bfloat(b.type()))
    since(b, 90);
  return bind_format<Op, 2, true>(b);
}

bool bind_fma(Binder &b) {
  if (!is_half(b.type()))
    return false;
  only(b, {"rn", "ftz", "sat", "relu"});
  if (is_bfloat(b.type()) || b.has("relu"))
    since(b, 80);
  return bind_format<Fma, 3, true, true>(b);
}

template <class Op, int FirstF16, int FirstBF16> bool bind_approx(Binder &b) {
  if (!is_half(b.type()))
    return false;
  only(b, {"approx", "ftz"});
  since(b, is_bfloat(b.type()) ? FirstBF16 : FirstF16);
  return bind_format<Op, 1>(b);
}

template <template <bool> class Extremum> bool bind_extremum(Binder &b) {
  if (!is_half(b.type()))
    return false;
  only(b, {"ftz", "NaN", "xorsign", "abs"});
  since(b, b.has("xorsign") ? 86 : 80);
  return with_flag(b.has("NaN"), [&]<bool NaN>() {
    return b.has("xorsign") ? bind_format<Select<XorSign<Extremum<NaN>>>, 2>(b)
                            : bind_format<Select<Extremum<NaN>>, 2>(b);
  });
}

template <class Op> bool bind_sign(Binder &b) {
  if (!is_half(b.type()))
    return false;
  only(b, {"ftz"});
  if (is_bfloat(b.type())) {
    since(b, 80);
    return bind_scalar_or_packed<OnSign<Op, BFloat, false>, 1>(b);
  }
  return with_flag(b.has("ftz"),
                   [&]<bool Ftz>() { return bind_scalar_or_packed<OnSign<Op, Half, Ftz>, 1>(b); });
}

constexpr TableEntry kTable[] = {
    {"add", bind_arithmetic<Add>},     {"sub", bind_arithmetic<Sub>},
    {"mul", bind_arithmetic<Mul>},     {"fma", bind_fma},
    {"neg", bind_sign<Neg>},           {"abs", bind_sign<Abs>},
    {"min", bind_extremum<Minimum>},   {"max", bind_extremum<Maximum>},
    {"ex2", bind_approx<Ex2, 75, 90>}, {"tanh", bind_approx<Tanh, 75, 90>},
};

} // namespace

std::span<const TableEntry> half_table() { return kTable; }

} // namespace ladder::instructions
