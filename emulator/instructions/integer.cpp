// "Integer Arithmetic Instructions", except those on bits, and "Extended-Precision Integer Arithmetic
// Instructions".
#include "instructions/elementwise.h"
#include "instructions/shifts.h"

#include <algorithm>
#include <limits>

namespace ladder::instructions {

namespace {

/// The type of twice the width; signed or unsigned __int128 for 64 bits.
__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;
template <class T>
using Double = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, Int128, UInt128>>>;

// Results wrap, so compute sums and products in an unsigned type of at least 32 bits, where overflow is
// defined.
template <class T> auto wrapping(T value) {
  return static_cast<std::common_type_t<Unsigned<T>, std::uint32_t>>(value);
}

template <class T> T saturate(std::int64_t value) {
  return static_cast<T>(
      std::clamp<std::int64_t>(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

// --- operations on values ----------------------------------------------------------------------------------

struct Add {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(wrapping(a) + wrapping(b)); }
};
struct Sub {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(wrapping(a) - wrapping(b)); }
};
struct AddSat {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    return saturate<std::int32_t>(std::int64_t(a) + std::int64_t(b));
  }
};
struct SubSat {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    return saturate<std::int32_t>(std::int64_t(a) - std::int64_t(b));
  }
};

struct MulLo {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(wrapping(a) * wrapping(b)); }
};
struct MulHi {
  template <class T> T operator()(T a, T b) const {
    return static_cast<T>((Double<T>(a) * Double<T>(b)) >> (8 * sizeof(T)));
  }
};
struct MulWide {
  template <class T> Double<T> operator()(T a, T b) const { return Double<T>(a) * Double<T>(b); }
};
struct MadHiSat {
  std::int32_t operator()(std::int32_t a, std::int32_t b, std::int32_t c) const {
    return saturate<std::int32_t>(std::int64_t(MulHi{}(a, b)) + c);
  }
};

/// The 48-bit product of the low 24 bits.
template <class T> std::int64_t multiply24(T a, T b) {
  const auto low = [](T value) {
    return static_cast<std::int64_t>(static_cast<T>(Unsigned<T>(value) << 8) >> 8);
  };
  return low(a) * low(b);
}
struct Mul24Lo {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(multiply24(a, b)); }
};
struct Mul24Hi {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(multiply24(a, b) >> 16); }
};
struct Mad24HiSat {
  std::int32_t operator()(std::int32_t a, std::int32_t b, std::int32_t c) const {
    return saturate<std::int32_t>(std::int64_t(Mul24Hi{}(a, b)) + c);
  }
};

/// mad: a product plus c.
template <class Product> struct ThenAdd {
  template <class T, class U> U operator()(T a, T b, U c) const {
    return Add{}(static_cast<U>(Product{}(a, b)), c);
  }
};

struct Sad {
  template <class T> T operator()(T a, T b, T c) const { return Add{}(c, a < b ? Sub{}(b, a) : Sub{}(a, b)); }
};

// The manual leaves division by zero undefined; the hardware returns all ones.
template <class T> bool overflows(T a, T b) {
  return std::is_signed_v<T> && b == static_cast<T>(-1) && a == std::numeric_limits<T>::min();
}
struct Div {
  static constexpr bool is_scalar = true;
  template <class T> T operator()(T a, T b) const {
    return b == 0 ? static_cast<T>(~T(0)) : overflows(a, b) ? a : static_cast<T>(a / b);
  }
};
struct Rem {
  static constexpr bool is_scalar = true;
  template <class T> T operator()(T a, T b) const {
    return b == 0 ? static_cast<T>(~T(0)) : overflows(a, b) ? T(0) : static_cast<T>(a % b);
  }
};

struct Neg {
  template <class T> T operator()(T a) const { return Sub{}(T(0), a); }
};
struct Abs {
  template <class T> T operator()(T a) const { return a < 0 ? Neg{}(a) : a; }
};
struct Min {
  template <class T> T operator()(T a, T b) const { return b < a ? b : a; }
};
struct Max {
  template <class T> T operator()(T a, T b) const { return a < b ? b : a; }
};
/// .relu: clamps the result to at least zero.
template <class Op> struct Relu {
  template <class T> T operator()(T a, T b) const { return Max{}(Op{}(a, b), T(0)); }
};

/// Part i of a word: an 8- or 16-bit field, sign- or zero-extended according to Field.
template <class Field> std::uint32_t part(std::uint32_t word, unsigned i) {
  return static_cast<std::uint32_t>(static_cast<Field>(word >> (8 * sizeof(Field) * i)));
}
template <class A, class B> struct Dp4a {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    for (unsigned i = 0; i < 4; ++i)
      c += part<A>(a, i) * part<B>(b, i);
    return c;
  }
};
template <class A, class B, unsigned First> struct Dp2a {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    return c + part<A>(a, 0) * part<B>(b, First) + part<A>(a, 1) * part<B>(b, First + 1);
  }
};

/// Op on the two halves of a word.
template <class Op, class Half> struct Packed {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    const auto low = Op{}(static_cast<Half>(a), static_cast<Half>(b));
    const auto high = Op{}(static_cast<Half>(a >> 16), static_cast<Half>(b >> 16));
    return static_cast<std::uint16_t>(low) | std::uint32_t(static_cast<std::uint16_t>(high)) << 16;
  }
};

// --- carries -----------------------------------------------------------------------------------------------

constexpr std::uint32_t kReadsCarry = 1, kWritesCarry = 2;

/// add.cc, addc, sub.cc, subc and the sums of mad.cc and madc: arithmetic with the condition code, one flag
/// per lane.
///
/// Hardware subtracts by adding the complement, so sub.cc sets the flag to "no borrow". The manual calls it
/// the borrow. sub.cc and subc alone cannot show the difference, but nvcc's 128-bit division ends a chain of
/// subc.cc in an addc.
template <class T, bool Subtract>
void add_with_carry(Warp &warp, const Instruction &in, const T *a, const T *b) {
  const bool reads = in.flags & kReadsCarry, writes = in.flags & kWritesCarry;
  T *d = warp.lanes<T>(in.op[0]);
  std::uint32_t carry = warp.carry();
  for_lanes(warp.active(), [&](int lane) {
    const std::uint32_t bit = kLaneBit[unsigned(lane)];
    const T carry_in = reads ? (carry & bit) != 0 : Subtract;
    T result;
    bool out = __builtin_add_overflow(a[lane], Subtract ? T(~b[lane]) : b[lane], &result);
    out |= __builtin_add_overflow(result, carry_in, &result);
    d[lane] = result;
    if (writes)
      carry = out ? carry | bit : carry & ~bit;
  });
  warp.carry() = carry;
}

template <class T, bool Subtract> void carry_sum(Warp &warp, const Instruction &in) {
  add_with_carry<T, Subtract>(warp, in, warp.lanes<T>(in.op[1]), warp.lanes<T>(in.op[2]));
}

template <class Product, class T> void carry_mad(Warp &warp, const Instruction &in) {
  using U = Unsigned<T>;
  const U *a = warp.lanes<U>(in.op[1]), *b = warp.lanes<U>(in.op[2]);
  U product[32];
  for (int lane = 0; lane < 32; ++lane)
    product[lane] = static_cast<U>(Product{}(static_cast<T>(a[lane]), static_cast<T>(b[lane])));
  add_with_carry<U, false>(warp, in, product, warp.lanes<U>(in.op[3]));
}

template <bool Subtract, bool Reads> bool bind_carry_sum(Binder &b) {
  only(b, {"cc"});
  b.out.flags = (Reads ? kReadsCarry : 0) | (b.has("cc") ? kWritesCarry : 0);
  return with_type(WideIntegers{}, b.type(), [&]<class T>() {
    bind_operands<T, T, T>(b);
    b.out.execute = carry_sum<Unsigned<T>, Subtract>;
    return true;
  });
}

template <bool Reads> bool bind_carry_mad(Binder &b) {
  only(b, {"cc", "lo", "hi"});
  b.out.flags = (Reads ? kReadsCarry : 0) | (b.has("cc") ? kWritesCarry : 0);
  return with_type(WideIntegers{}, b.type(), [&]<class T>() {
    bind_operands<T, T, T, T>(b);
    b.out.execute = b.has("hi") ? carry_mad<MulHi, T> : carry_mad<MulLo, T>;
    return true;
  });
}

// --- binding -----------------------------------------------------------------------------------------------

bool is_packed(const Binder &b) { return b.has("u16x2") || b.has("s16x2"); }

/// add, min and max of .u16x2 and .s16x2.
template <class Op> bool bind_packed(Binder &b) {
  since(b, 90);
  if (b.has("u16x2"))
    return bind_elementwise<Packed<Op, std::uint16_t>, std::uint32_t, std::uint32_t, std::uint32_t>(b);
  return bind_elementwise<Packed<Op, std::int16_t>, std::uint32_t, std::uint32_t, std::uint32_t>(b);
}

bool bind_add(Binder &b) {
  if (is_packed(b)) {
    only(b, {"u16x2", "s16x2"});
    return bind_packed<Add>(b);
  }
  if (b.has("cc"))
    return bind_carry_sum<false, false>(b);
  if (b.type() == ptx::Type::s32 && b.has("sat")) {
    only(b, {"sat"});
    return bind_elementwise<AddSat, std::int32_t, std::int32_t, std::int32_t>(b);
  }
  return plain<bind_binary<Add, Integers>>(b);
}

bool bind_sub(Binder &b) {
  if (b.has("cc"))
    return bind_carry_sum<true, false>(b);
  if (b.type() == ptx::Type::s32 && b.has("sat")) {
    only(b, {"sat"});
    return bind_elementwise<SubSat, std::int32_t, std::int32_t, std::int32_t>(b);
  }
  return plain<bind_binary<Sub, Integers>>(b);
}

bool bind_mul(Binder &b) {
  return with_type(Integers{}, b.type(), [&]<class T>() {
    only(b, {"lo", "hi", "wide"});
    if (b.has("wide")) {
      if constexpr (sizeof(T) == 8)
        return false;
      else
        return bind_elementwise<MulWide, Double<T>, T, T>(b);
    }
    return b.has("hi") ? bind_elementwise<MulHi, T, T, T>(b) : bind_elementwise<MulLo, T, T, T>(b);
  });
}

bool bind_mad(Binder &b) {
  if (b.has("cc"))
    return bind_carry_mad<false>(b);
  if (b.type() == ptx::Type::s32 && b.has("sat")) {
    only(b, {"hi", "sat"});
    return bind_elementwise<MadHiSat, std::int32_t, std::int32_t, std::int32_t, std::int32_t>(b);
  }
  return with_type(Integers{}, b.type(), [&]<class T>() {
    only(b, {"lo", "hi", "wide"});
    if (b.has("wide")) {
      if constexpr (sizeof(T) == 8)
        return false;
      else
        return bind_elementwise<ThenAdd<MulWide>, Double<T>, T, T, Double<T>>(b);
    }
    return b.has("hi") ? bind_elementwise<ThenAdd<MulHi>, T, T, T, T>(b)
                       : bind_elementwise<ThenAdd<MulLo>, T, T, T, T>(b);
  });
}

using Integers32 = Types<std::uint32_t, std::int32_t>;

bool bind_mul24(Binder &b) {
  only(b, {"lo", "hi"});
  return b.has("hi") ? bind_binary<Mul24Hi, Integers32>(b) : bind_binary<Mul24Lo, Integers32>(b);
}

bool bind_mad24(Binder &b) {
  only(b, {"lo", "hi", "sat"});
  if (b.has("sat"))
    return bind_elementwise<Mad24HiSat, std::int32_t, std::int32_t, std::int32_t, std::int32_t>(b);
  return b.has("hi") ? bind_ternary<ThenAdd<Mul24Hi>, Integers32>(b)
                     : bind_ternary<ThenAdd<Mul24Lo>, Integers32>(b);
}

template <class Op> bool bind_extremum(Binder &b) {
  if (is_packed(b)) {
    only(b, {"u16x2", "s16x2", "relu"});
    return b.has("relu") ? bind_packed<Relu<Op>>(b) : bind_packed<Op>(b);
  }
  if (b.type() == ptx::Type::s32 && b.has("relu")) {
    only(b, {"relu"});
    since(b, 90);
    return bind_elementwise<Relu<Op>, std::int32_t, std::int32_t, std::int32_t>(b);
  }
  return plain<bind_binary<Op, Integers>>(b);
}

/// Calls f.operator()<A, B>(), with A and B signed or unsigned like the instruction's two types.
template <class Unsigned8, class Signed8, class UnsignedA, class SignedA, class F>
bool with_signs(Binder &b, F f) {
  const bool a = b.type(0) == ptx::Type::s32, other = b.type(1) == ptx::Type::s32;
  if (a)
    return other ? f.template operator()<SignedA, Signed8>() : f.template operator()<SignedA, Unsigned8>();
  return other ? f.template operator()<UnsignedA, Signed8>() : f.template operator()<UnsignedA, Unsigned8>();
}

bool bind_dp4a(Binder &b) {
  return with_signs<std::uint8_t, std::int8_t, std::uint8_t, std::int8_t>(b, [&]<class A, class B>() {
    return bind_elementwise<Dp4a<A, B>, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(b);
  });
}

bool bind_dp2a(Binder &b) {
  only(b, {"lo", "hi"});
  return with_signs<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t>(b, [&]<class A, class B>() {
    if (b.has("hi"))
      return bind_elementwise<Dp2a<A, B, 2>, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(b);
    return bind_elementwise<Dp2a<A, B, 0>, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(b);
  });
}

constexpr TableEntry kTable[] = {
    {"add", bind_add},
    {"sub", bind_sub},
    {"mul", bind_mul},
    {"mad", bind_mad},
    {"mul24", bind_mul24},
    {"mad24", bind_mad24},
    {"sad", plain<bind_ternary<Sad, Integers>>},
    {"div", plain<bind_binary<Div, Integers>>},
    {"rem", plain<bind_binary<Rem, Integers>>},
    {"abs", plain<bind_unary<Abs, SignedIntegers>>},
    {"neg", plain<bind_unary<Neg, SignedIntegers>>},
    {"min", bind_extremum<Min>},
    {"max", bind_extremum<Max>},
    {"dp4a", plain<bind_dp4a>},
    {"dp2a", bind_dp2a},
    {"addc", bind_carry_sum<false, true>},
    {"subc", bind_carry_sum<true, true>},
    {"madc", bind_carry_mad<true>},
};

} // namespace

std::span<const TableEntry> integer_table() { return kTable; }

} // namespace ladder::instructions
