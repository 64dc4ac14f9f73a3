// Elementwise instructions: each lane's result depends only on that lane's sources.
//
// An opcode is a function object on values (`struct Add { T operator()(T a, T b) const; }`) and a line that
// binds it to types. The loops over lanes have no branches and no calls, so that the compiler vectorises
// them. A function object that cannot vectorise (it branches or calls the maths library) declares `static
// constexpr bool is_scalar = true` and runs only for the active lanes.
#pragma once

#include "instructions/binder.h"
#include "instructions/lanes.h"
#include "machine/warp.h"

#include <bit>
#include <cfenv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ladder::instructions {

using machine::Instruction;
using machine::kAllLanes;
using machine::Warp;

/// The bits of a half-precision register; f16x2 and bf16x2 hold two values, the first in the low half.
enum class F16 : std::uint16_t {};
enum class BF16 : std::uint16_t {};
enum class F16x2 : std::uint32_t {};
enum class BF16x2 : std::uint32_t {};

// --- lanes -------------------------------------------------------------------------------------------------

/// Storage of a T in a frame: 32 bits, zero-extended, or 64.
template <class T> using Lane = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T> constexpr T from_lane(Lane<T> lane) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<T>(lane);
  else
    return static_cast<T>(lane);
}

template <class T> constexpr Lane<T> to_lane(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<Lane<T>>(value);
  else if constexpr (std::is_enum_v<T>)
    return static_cast<Lane<T>>(static_cast<std::underlying_type_t<T>>(value));
  else
    return static_cast<std::make_unsigned_t<T>>(value);
}

/// d[lane] = values[lane] for the lanes in the mask.
template <class Word> void blend_lanes(Word *d, const Word *values, std::uint32_t mask) {
  LADDER_LANES_ARE_INDEPENDENT
  for (int lane = 0; lane < 32; ++lane) {
    const Word value = values[lane], before = d[lane]; // conditional loads would not vectorise
    d[lane] = (mask & kLaneBit[unsigned(lane)]) != 0 ? value : before;
  }
}

/// Writes f(lane) to the active lanes. If Vectorised, calls f for inactive lanes too.
template <class D, bool Vectorised = true, class F>
[[gnu::always_inline]] inline void write_lanes(Lane<D> *d, std::uint32_t active, F f) {
  if constexpr (Vectorised) {
    Lane<D> all[32];
    Lane<D> *const out = active == kAllLanes ? d : all;
    LADDER_LANES_ARE_INDEPENDENT
    for (int lane = 0; lane < 32; ++lane)
      out[lane] = to_lane<D>(f(lane));
    if (active != kAllLanes)
      blend_lanes(d, all, active);
  } else {
    for_lanes(active, [&](int lane) { d[lane] = to_lane<D>(f(lane)); });
  }
}

/// Mask of the lanes for which f(lane) holds; calls f for all 32.
template <class F> [[gnu::always_inline]] inline std::uint32_t lanes_where(F f) {
  std::uint32_t mask = 0;
  LADDER_LANES_ARE_INDEPENDENT
  for (int lane = 0; lane < 32; ++lane)
    mask |= f(lane) ? kLaneBit[unsigned(lane)] : 0;
  return mask;
}

// --- handlers ----------------------------------------------------------------------------------------------

template <class Op>
concept ScalarOp = requires { requires Op::is_scalar; };

/// An operation with a constructor `explicit Op(const Instruction &)` reads what the binder left there.
template <class Op> [[gnu::always_inline]] inline Op make_op(const Instruction &in) {
  if constexpr (std::constructible_from<Op, const Instruction &>)
    return Op(in);
  else
    return Op{};
}

template <class Op, class D, class... S, std::size_t... I>
[[gnu::always_inline]] inline void elementwise_lanes(Warp &warp, const Instruction &in,
                                                     std::index_sequence<I...>) {
  const Op op = make_op<Op>(in);
  const std::tuple<const Lane<S> *...> sources{warp.lanes<Lane<S>>(in.op[1 + I])...};
  write_lanes<D, !ScalarOp<Op>>(warp.lanes<Lane<D>>(in.op[0]), warp.active(), [=](int lane) -> D {
    return op(from_lane<S>(std::get<I>(sources)[lane])...);
  });
}

/// op[0] = Op(op[1], op[2], ...)
template <class Op, class D, class... S> void elementwise(Warp &warp, const Instruction &in) {
  elementwise_lanes<Op, D, S...>(warp, in, std::index_sequence_for<S...>{});
}

// --- rounding ----------------------------------------------------------------------------------------------

enum class Rounding : std::uint32_t { nearest, zero, down, up };

/// Sets the host's rounding mode. Computations inside must load their inputs from memory and store their
/// results there, or the compiler may move them out of the scope.
class RoundingScope {
public:
  explicit RoundingScope(Rounding rounding) : before_(std::fegetround()) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(kModes[static_cast<std::uint32_t>(rounding)]);
  }
  ~RoundingScope() { std::fesetround(before_); }
  RoundingScope(const RoundingScope &) = delete;
  RoundingScope &operator=(const RoundingScope &) = delete;

private:
  int before_;
};

/// Like `elementwise`, in the rounding mode in `flags`.
template <class Op, class D, class... S> void elementwise_rounded(Warp &warp, const Instruction &in) {
  const RoundingScope scope(static_cast<Rounding>(in.flags));
  elementwise_lanes<Op, D, S...>(warp, in, std::index_sequence_for<S...>{});
}

/// .rn .rz .rm .rp, or .rni .rzi .rmi .rpi; nullopt if the instruction has none.
inline std::optional<Rounding> rounding_of(const Binder &b) {
  constexpr std::string_view kNames[4][2] = {{"rn", "rni"}, {"rz", "rzi"}, {"rm", "rmi"}, {"rp", "rpi"}};
  for (std::uint32_t mode = 0; mode < 4; ++mode)
    if (b.has(kNames[mode][0]) || b.has(kNames[mode][1]))
      return static_cast<Rounding>(mode);
  return std::nullopt;
}

// --- binding -----------------------------------------------------------------------------------------------

template <class T> inline constexpr ptx::Type kType = ptx::Type::none;
template <> inline constexpr ptx::Type kType<std::uint8_t> = ptx::Type::u8;
template <> inline constexpr ptx::Type kType<std::uint16_t> = ptx::Type::u16;
template <> inline constexpr ptx::Type kType<std::uint32_t> = ptx::Type::u32;
template <> inline constexpr ptx::Type kType<std::uint64_t> = ptx::Type::u64;
template <> inline constexpr ptx::Type kType<std::int8_t> = ptx::Type::s8;
template <> inline constexpr ptx::Type kType<std::int16_t> = ptx::Type::s16;
template <> inline constexpr ptx::Type kType<std::int32_t> = ptx::Type::s32;
template <> inline constexpr ptx::Type kType<std::int64_t> = ptx::Type::s64;
template <> inline constexpr ptx::Type kType<float> = ptx::Type::f32;
template <> inline constexpr ptx::Type kType<double> = ptx::Type::f64;
template <> inline constexpr ptx::Type kType<F16> = ptx::Type::f16;
template <> inline constexpr ptx::Type kType<BF16> = ptx::Type::bf16;
template <> inline constexpr ptx::Type kType<F16x2> = ptx::Type::f16x2;
template <> inline constexpr ptx::Type kType<BF16x2> = ptx::Type::bf16x2;

/// u16 for b16 and so on: untyped values are treated as unsigned.
constexpr ptx::Type untyped_as_unsigned(ptx::Type type) {
  switch (type) {
  case ptx::Type::b8:
    return ptx::Type::u8;
  case ptx::Type::b16:
    return ptx::Type::u16;
  case ptx::Type::b32:
    return ptx::Type::u32;
  case ptx::Type::b64:
    return ptx::Type::u64;
  default:
    return type;
  }
}

template <class... Ts> struct Types {};
using Integers = Types<std::uint16_t, std::uint32_t, std::uint64_t, std::int16_t, std::int32_t, std::int64_t>;
using SignedIntegers = Types<std::int16_t, std::int32_t, std::int64_t>;
using WideIntegers = Types<std::uint32_t, std::uint64_t, std::int32_t, std::int64_t>;
using Bits = Types<std::uint16_t, std::uint32_t, std::uint64_t>;

/// Calls f.operator()<T>() for the T among Ts that `type` names and returns its result; false if there is
/// none.
template <class... Ts, class F> bool with_type(Types<Ts...>, ptx::Type type, F f) {
  bool result = false;
  (void)((kType<Ts> == untyped_as_unsigned(type) && (result = f.template operator()<Ts>(), true)) || ...);
  return result;
}

/// Calls f.operator()<value>().
template <class F> auto with_flag(bool value, F f) {
  return value ? f.template operator()<true>() : f.template operator()<false>();
}

/// Rejects any other number of operands.
inline void expect_operands(const Binder &b, std::size_t count) {
  if (b.operand_count() != count)
    b.unsupported("expected " + std::to_string(count) + " operands");
}

/// Rejects any modifier that is neither a type nor in `allowed`.
inline void only(const Binder &b, std::initializer_list<std::string_view> allowed) {
  for (const std::string &modifier : b.source.modifiers) {
    bool known = ptx::type_from_name(modifier).has_value();
    for (const std::string_view word : allowed)
      known = known || word == modifier;
    if (!known)
      b.unsupported("modifier ." + modifier);
  }
}

/// Rejects the instruction on a virtual GPU below this compute capability (80 for 8.0).
inline void since(const Binder &b, int capability) {
  if (b.gpu().major * 10 + b.gpu().minor < capability)
    b.unsupported("needs sm_" + std::to_string(capability) + " or newer");
}

/// Rejects the instruction unless the PTX targets one of these architectures ("sm_90a"), as ptxas does, and
/// the virtual GPU is one.
inline void needs_target(const Binder &b, std::initializer_list<std::string_view> targets) {
  std::string names;
  for (const std::string_view target : targets) {
    if (b.target() == target) {
      if (std::to_string(b.gpu().major * 10 + b.gpu().minor) + "a" != target.substr(3))
        b.unsupported("needs " + std::string(target) + ", and the virtual GPU is " +
                      std::string(b.gpu().arch));
      return;
    }
    names += (names.empty() ? "" : " or ") + std::string(target);
  }
  b.unsupported("needs .target " + names + ", and this PTX is for " + b.target() + ": compile for compute_" +
                std::string(targets.begin()->substr(3)));
}

/// Binds operand 0 as D and the rest as S.
template <class D, class... S> void bind_operands(Binder &b) {
  expect_operands(b, 1 + sizeof...(S));
  b.out.op[0] = b.destination_slot(0, kType<D>);
  std::size_t i = 0;
  ((++i, b.out.op[i] = b.source_slot(i, kType<S>)), ...);
}

template <class Op, class D, class... S> bool bind_elementwise(Binder &b) {
  bind_operands<D, S...>(b);
  b.out.execute = elementwise<Op, D, S...>;
  return true;
}

/// Binds Op with `Arity` source operands, all of type T.
template <class Op, class T, int Arity> bool bind_arity(Binder &b) {
  if constexpr (Arity == 1)
    return bind_elementwise<Op, T, T>(b);
  else if constexpr (Arity == 2)
    return bind_elementwise<Op, T, T, T>(b);
  else
    return bind_elementwise<Op, T, T, T, T>(b);
}

// Binds Op with operands and result of the instruction's type, which must be in List.
template <class Op, class List> bool bind_unary(Binder &b) {
  return with_type(List{}, b.type(), [&]<class T>() { return bind_elementwise<Op, T, T>(b); });
}
template <class Op, class List> bool bind_binary(Binder &b) {
  return with_type(List{}, b.type(), [&]<class T>() { return bind_elementwise<Op, T, T, T>(b); });
}
template <class Op, class List> bool bind_ternary(Binder &b) {
  return with_type(List{}, b.type(), [&]<class T>() { return bind_elementwise<Op, T, T, T, T>(b); });
}

/// Table entry: Bind, allowing no modifiers but types.
template <BindFunction Bind> bool plain(Binder &b) {
  if (!Bind(b))
    return false;
  only(b, {});
  return true;
}

} // namespace ladder::instructions
