// "Floating Point Instructions": f32 and f64.
#include "instructions/elementwise.h"
#include "instructions/float_type.h"

namespace ladder::instructions {

namespace {

// --- operations on values ----------------------------------------------------------------------------------

struct Mul {
  template <class T> T operator()(T a, T b) const { return a * b; }
  static double before_rounding(float a, float b) { return double(a) * double(b); }
};
struct Fma {
  static double before_rounding(float a, float b, float c) { return double(a) * double(b) + double(c); }
  float operator()(float a, float b, float c) const { return fused_multiply_add(a, b, c); }
  double operator()(double a, double b, double c) const { return std::fma(a, b, c); }
};
/// For directed rounding, which must not affect fused_multiply_add's intermediate steps.
struct FmaInMode : Fma {
  template <class T> T operator()(T a, T b, T c) const { return std::fma(a, b, c); }
};
/// div.approx computes a * (1 / b): the reciprocal of a huge number flushes to zero.
struct DivApprox {
  float operator()(float a, float b) const {
    const float reciprocal_sign = copy_sign(0.0f, b);
    return absolute(b) > 0x1p126f ? a * reciprocal_sign : a / b;
  }
};
struct Rcp {
  template <class T> T operator()(T a) const { return T(1) / a; }
};
struct Sqrt {
  template <class T> T operator()(T a) const { return std::sqrt(a); }
};
struct Rsqrt {
  float operator()(float a) const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
  double operator()(double a) const { return 1.0 / std::sqrt(a); }
};
struct Ex2 {
  float operator()(float a) const { return power_of_two(a); }
};
struct Lg2 {
  static constexpr bool is_scalar = true;
  float operator()(float a) const { return static_cast<float>(std::log2(static_cast<double>(a))); }
};
struct Sin {
  static constexpr bool is_scalar = true;
  float operator()(float a) const { return static_cast<float>(std::sin(static_cast<double>(a))); }
};
struct Cos {
  static constexpr bool is_scalar = true;
  float operator()(float a) const { return static_cast<float>(std::cos(static_cast<double>(a))); }
};
struct Tanh {
  static constexpr bool is_scalar = true;
  float operator()(float a) const { return static_cast<float>(std::tanh(static_cast<double>(a))); }
};

/// Flushes a result that is subnormal before rounding, even if it would round to a normal number.
template <bool Ftz, class Op, class... T> auto flushed_result(T... x) {
  const auto result = Op{}(x...);
  if constexpr (Ftz && requires { Op::before_rounding(x...); })
    return std::fabs(Op::before_rounding(x...)) < 0x1p-126 ? copy_sign(0.0f, result) : result;
  else
    return flush<Ftz>(result);
}

/// Op with its modifiers. Every f32 NaN result is the canonical one.
template <class Op, bool Ftz, bool Sat> struct WithModifiers {
  static constexpr bool is_scalar = ScalarOp<Op>;
  template <class... T> auto operator()(T... x) const {
    const auto result = flushed_result<Ftz, Op>(flush<Ftz>(x)...);
    if constexpr (Sat)
      return saturate(result);
    else
      return canonical(result);
  }
};

// --- binding -----------------------------------------------------------------------------------------------

bool is_float(ptx::Type type) { return type == ptx::Type::f32 || type == ptx::Type::f64; }

/// Binds Op for f32 with the instruction's .ftz and .sat; accepts .sat only if MayBeSat.
template <class Op, int Arity, bool MayBeSat = false> bool bind_f32(Binder &b) {
  return with_flag(b.has("ftz"), [&]<bool Ftz>() {
    if constexpr (MayBeSat)
      if (b.has("sat"))
        return bind_arity<WithModifiers<Op, Ftz, true>, float, Arity>(b);
    return bind_arity<WithModifiers<Op, Ftz, false>, float, Arity>(b);
  });
}

template <class Op, int Arity, bool MayBeSat = false> bool bind_either(Binder &b) {
  if (b.type() == ptx::Type::f32)
    return bind_f32<Op, Arity, MayBeSat>(b);
  if (b.has("ftz") || b.has("sat"))
    b.unsupported(".ftz and .sat are for f32");
  return bind_arity<WithModifiers<Op, false, false>, double, Arity>(b);
}

template <class Op, class Float, int Arity> machine::Handler rounded_handler() {
  if constexpr (Arity == 1)
    return elementwise_rounded<Op, Float, Float>;
  else if constexpr (Arity == 2)
    return elementwise_rounded<Op, Float, Float, Float>;
  else
    return elementwise_rounded<Op, Float, Float, Float, Float>;
}

/// Like bind_either, in the instruction's rounding mode; InMode replaces Op for directed rounding.
template <class Op, int Arity, bool MayBeSat = false, class InMode = Op> bool bind_rounded(Binder &b) {
  bind_either<Op, Arity, MayBeSat>(b);
  const Rounding rounding = rounding_of(b).value_or(Rounding::nearest);
  if (rounding == Rounding::nearest)
    return true;
  b.out.flags = static_cast<std::uint32_t>(rounding);
  if (b.type() == ptx::Type::f64)
    b.out.execute = rounded_handler<WithModifiers<InMode, false, false>, double, Arity>();
  else
    b.out.execute = with_flag(b.has("ftz"), [&]<bool Ftz>() {
      if constexpr (MayBeSat)
        if (b.has("sat"))
          return rounded_handler<WithModifiers<InMode, Ftz, true>, float, Arity>();
      return rounded_handler<WithModifiers<InMode, Ftz, false>, float, Arity>();
    });
  return true;
}

/// Packed integers have no type of their own in the source.
bool takes_floats(const Binder &b) { return !b.source.types.empty() && is_float(b.type()); }

// --- sm_100: pairs, and operands of 16 bits ----------------------------------------------------------------

/// f32x2: Op on each half of 64-bit registers.
template <class Op> struct OfPairs {
  template <class... T> std::uint64_t operator()(T... x) const {
    return std::uint64_t(of_half(static_cast<std::uint32_t>(x)...)) |
           std::uint64_t(of_half(static_cast<std::uint32_t>(x >> 32)...)) << 32;
  }
  template <class... T> static std::uint32_t of_half(T... x) { return float_bits(Op{}(float_from(x)...)); }
};

template <class Op, int Arity, class InMode = Op> bool bind_pairs(Binder &b) {
  since(b, 100);
  only(b, {"rn", "rz", "rm", "rp", "ftz", "f32x2"});
  const Rounding rounding = rounding_of(b).value_or(Rounding::nearest);
  with_flag(b.has("ftz"), [&]<bool Ftz>() {
    bind_arity<OfPairs<WithModifiers<Op, Ftz, false>>, std::uint64_t, Arity>(b);
    if (rounding != Rounding::nearest)
      b.out.execute = rounded_handler<OfPairs<WithModifiers<InMode, Ftz, false>>, std::uint64_t, Arity>();
    return true;
  });
  b.out.flags = static_cast<std::uint32_t>(rounding);
  return true;
}

/// add, sub and fma of f32 whose first operands have 16 bits.
template <class Op, class Format> struct OfHalves {
  template <class H> float operator()(H a, float c) const { return Op{}(wide(a), c); }
  template <class H> float operator()(H a, H b, float c) const { return Op{}(wide(a), wide(b), c); }
  template <class H> static float wide(H half) {
    return Format::to_float(static_cast<std::underlying_type_t<H>>(half));
  }
};

bool has_halves(const Binder &b) { return b.source.types.size() == 2 && b.type(0) == ptx::Type::f32; }

template <class Op, int Arity> bool bind_halves(Binder &b) {
  since(b, 100);
  only(b, {"rn", "rz", "rm", "rp", "sat"});
  const Rounding rounding = rounding_of(b).value_or(Rounding::nearest);
  const auto bind = [&]<class H, class Format, bool Sat>() {
    using Widened = OfHalves<WithModifiers<Op, false, Sat>, Format>;
    if constexpr (Arity == 2) {
      bind_elementwise<Widened, float, H, float>(b);
      if (rounding != Rounding::nearest)
        b.out.execute = elementwise_rounded<Widened, float, H, float>;
    } else {
      bind_elementwise<Widened, float, H, H, float>(b);
      if (rounding != Rounding::nearest)
        b.out.execute = elementwise_rounded<Widened, float, H, H, float>;
    }
    return true;
  };
  with_flag(b.has("sat"), [&]<bool Sat>() {
    return b.type(1) == ptx::Type::f16 ? bind.template operator()<F16, Half, Sat>()
                                       : bind.template operator()<BF16, BFloat, Sat>();
  });
  b.out.flags = static_cast<std::uint32_t>(rounding);
  return true;
}

/// add sub mul: round to nearest by default.
template <class Op> bool bind_arithmetic(Binder &b) {
  if (b.has("f32x2"))
    return bind_pairs<Op, 2>(b);
  if (!takes_floats(b))
    return false;
  if constexpr (!std::is_same_v<Op, Mul>)
    if (has_halves(b))
      return bind_halves<Op, 2>(b);
  only(b, {"rn", "rz", "rm", "rp", "ftz", "sat"});
  return bind_rounded<Op, 2, true>(b);
}

/// fma, and mad, an alias since sm_20.
bool bind_fma(Binder &b) {
  if (b.has("f32x2"))
    return bind_pairs<Fma, 3, FmaInMode>(b);
  if (!takes_floats(b))
    return false;
  if (has_halves(b))
    return bind_halves<FmaInMode, 3>(b);
  only(b, {"rn", "rz", "rm", "rp", "ftz", "sat"});
  return bind_rounded<Fma, 3, true, FmaInMode>(b);
}

/// div rcp sqrt: .approx (and .full), or with a rounding mode.
template <class Approximate, class Exact, int Arity> bool bind_approx_or_rounded(Binder &b) {
  if (!takes_floats(b))
    return false;
  only(b, {"approx", "full", "rn", "rz", "rm", "rp", "ftz"});
  if (b.has("approx"))
    return b.type() == ptx::Type::f32 && bind_f32<Approximate, Arity>(b);
  return bind_rounded<Exact, Arity>(b);
}

template <class Op> bool bind_approx(Binder &b) {
  if (b.type() != ptx::Type::f32)
    return false;
  only(b, {"approx", "ftz"});
  return bind_f32<Op, 1>(b);
}

bool bind_tanh(Binder &b) {
  if (b.type() == ptx::Type::f32)
    since(b, 75);
  return bind_approx<Tanh>(b);
}

/// rcp and rsqrt .approx.ftz.f64: a coarse approximation that reads and writes only the upper 32 bits.
template <class Op> struct HighWord {
  double operator()(double a) const {
    const double result = flush_double(Op{}(flush_double(high_word(a))));
    return high_word(result != result ? std::bit_cast<double>(0x7fffffffffffffffu) : result);
  }
  static double high_word(double value) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & 0xffffffff00000000u);
  }
  static double flush_double(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    return std::bit_cast<double>((bits << 1) < 0x0020000000000000u ? bits & 0x8000000000000000u : bits);
  }
};

bool bind_rcp(Binder &b) {
  if (b.type() == ptx::Type::f64 && b.has("approx")) {
    only(b, {"approx", "ftz"});
    if (!b.has("ftz"))
      b.unsupported("rcp.approx.f64 needs .ftz");
    return bind_elementwise<HighWord<Rcp>, double, double>(b);
  }
  return bind_approx_or_rounded<Rcp, Rcp, 1>(b);
}

bool bind_rsqrt(Binder &b) {
  if (b.type() == ptx::Type::f64) {
    only(b, {"approx", "ftz"});
    return b.has("ftz") ? bind_elementwise<HighWord<Rsqrt>, double, double>(b)
                        : bind_elementwise<Rsqrt, double, double>(b);
  }
  return bind_approx<Rsqrt>(b);
}

// --- minimum, maximum, signs -------------------------------------------------------------------------------

/// Of three values (sm_100), or of their magnitudes.
template <class Extremum, bool Abs> struct OfThree {
  float operator()(float a, float b, float c) const {
    if constexpr (Abs)
      return Extremum{}(Extremum{}(absolute(a), absolute(b)), absolute(c));
    else
      return Extremum{}(Extremum{}(a, b), c);
  }
};

template <template <bool> class Extremum> bool bind_three(Binder &b) {
  since(b, 100);
  only(b, {"ftz", "NaN", "abs"});
  return with_flag(b.has("NaN"), [&]<bool NaN>() {
    return with_flag(b.has("abs"), [&]<bool Abs>() { return bind_f32<OfThree<Extremum<NaN>, Abs>, 3>(b); });
  });
}

template <template <bool> class Extremum> bool bind_extremum(Binder &b) {
  if (!takes_floats(b))
    return false;
  if (b.type() == ptx::Type::f32 && b.operand_count() == 4)
    return bind_three<Extremum>(b);
  only(b, {"ftz", "NaN", "xorsign", "abs"});
  if (b.type() == ptx::Type::f64) {
    only(b, {});
    return bind_elementwise<Extremum<false>, double, double, double>(b);
  }
  if (b.has("NaN"))
    since(b, 80);
  if (b.has("xorsign"))
    since(b, 86);
  return with_flag(b.has("NaN"), [&]<bool NaN>() {
    return b.has("xorsign") ? bind_f32<XorSign<Extremum<NaN>>, 2>(b) : bind_f32<Extremum<NaN>, 2>(b);
  });
}

// The sign of a NaN stays.
struct Abs {
  template <class T> T operator()(T a) const { return a != a ? a : absolute(a); }
};
struct Neg {
  template <class T> T operator()(T a) const { return a != a ? a : -a; }
};
template <class Op> bool bind_sign(Binder &b) {
  if (!takes_floats(b))
    return false;
  only(b, {"ftz"});
  return bind_either<Op, 1>(b);
}

struct CopySign {
  template <class T> T operator()(T sign, T magnitude) const { return copy_sign(magnitude, sign); }
};

// --- testp -------------------------------------------------------------------------------------------------

template <class Float> bool finite(Float a) { return a - a == 0; }
template <class Float> bool is_subnormal(Float a) {
  const Float magnitude = absolute(a);
  return (magnitude > 0) & (magnitude < std::numeric_limits<Float>::min());
}
struct Finite {
  template <class T> bool operator()(T a) const { return finite(a); }
};
struct Infinite {
  template <class T> bool operator()(T a) const { return absolute(a) == std::numeric_limits<T>::infinity(); }
};
struct Number {
  template <class T> bool operator()(T a) const { return a == a; }
};
struct NotANumber {
  template <class T> bool operator()(T a) const { return a != a; }
};
struct Normal {
  template <class T> bool operator()(T a) const { return finite(a) & !is_subnormal(a); }
};
struct Subnormal {
  template <class T> bool operator()(T a) const { return is_subnormal(a); }
};

template <class Test, class Float> void test_property(Warp &warp, const Instruction &in) {
  const Lane<Float> *a = warp.lanes<Lane<Float>>(in.op[1]);
  warp.set_predicate(in.op[0], lanes_where([=](int lane) { return Test{}(from_lane<Float>(a[lane])); }));
}

template <class Test> machine::Handler test_handler(ptx::Type type) {
  return type == ptx::Type::f64 ? test_property<Test, double> : test_property<Test, float>;
}

bool bind_testp(Binder &b) {
  const ptx::Type type = b.type();
  if (!is_float(type))
    return false;
  only(b, {"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  expect_operands(b, 2);
  b.out.op[0] = b.destination_predicate(b.operand(0));
  b.out.op[1] = b.source_slot(1, type);
  b.out.execute = b.has("finite")       ? test_handler<Finite>(type)
                  : b.has("infinite")   ? test_handler<Infinite>(type)
                  : b.has("number")     ? test_handler<Number>(type)
                  : b.has("notanumber") ? test_handler<NotANumber>(type)
                  : b.has("normal")     ? test_handler<Normal>(type)
                                        : test_handler<Subnormal>(type);
  return true;
}

constexpr TableEntry kTable[] = {
    {"add", bind_arithmetic<std::plus<>>},
    {"sub", bind_arithmetic<std::minus<>>},
    {"mul", bind_arithmetic<Mul>},
    {"fma", bind_fma},
    {"mad", bind_fma},
    {"div", bind_approx_or_rounded<DivApprox, std::divides<>, 2>},
    {"rcp", bind_rcp},
    {"sqrt", bind_approx_or_rounded<Sqrt, Sqrt, 1>},
    {"rsqrt", bind_rsqrt},
    {"min", bind_extremum<Minimum>},
    {"max", bind_extremum<Maximum>},
    {"abs", bind_sign<Abs>},
    {"neg", bind_sign<Neg>},
    {"copysign", plain<bind_binary<CopySign, Types<float, double>>>},
    {"testp", bind_testp},
    {"sin", bind_approx<Sin>},
    {"cos", bind_approx<Cos>},
    {"lg2", bind_approx<Lg2>},
    {"ex2", bind_approx<Ex2>},
    {"tanh", bind_tanh},
};

} // namespace

std::span<const TableEntry> float_table() { return kTable; }

} // namespace ladder::instructions
