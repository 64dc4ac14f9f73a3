#include "instructions/convert_integers.h"

#include "instructions/elementwise.h"

#include <algorithm>

namespace ladder::instructions {

namespace {

bool is_signed(ptx::Type type) {
  return type == ptx::Type::s8 || type == ptx::Type::s16 || type == ptx::Type::s32 || type == ptx::Type::s64;
}

/// Extends the low bits of a register: shifts the upper bits out, then back.
template <bool Signed, class Word> Word extend(Word value, unsigned shift) {
  using Shifted = std::conditional_t<Signed, std::make_signed_t<Word>, Word>;
  return static_cast<Word>(static_cast<Shifted>(value << shift) >> shift);
}

// imm: byte 0 the width of the source type, byte 1 of the destination type, byte 2 of the destination
// register, in bits.
template <class From, class To, bool FromSigned, bool ToSigned> struct Extend {
  explicit Extend(const Instruction &in)
      : from_(8 * sizeof(From) - std::min<unsigned>(in.imm & 0xff, 8 * sizeof(From))),
        to_(8 * sizeof(To) - std::min<unsigned>(in.imm >> 8 & 0xff, 8 * sizeof(To))),
        register_(8 * sizeof(To) - std::min<unsigned>(in.imm >> 16 & 0xff, 8 * sizeof(To))) {}
  To operator()(From value) const {
    const From extended = extend<FromSigned>(value, from_);
    const To widened = FromSigned ? static_cast<To>(static_cast<std::make_signed_t<From>>(extended))
                                  : static_cast<To>(extended);
    return extend<false>(extend<ToSigned>(widened, to_), register_);
  }

private:
  unsigned from_, to_, register_;
};

/// .sat: clamps to the destination type.
template <class From, class To, bool FromSigned, bool ToSigned> struct Clamped {
  static constexpr bool is_scalar = true;
  explicit Clamped(const Instruction &in)
      : from_(8 * sizeof(From) - (in.imm & 0xff)), to_bits_(in.imm >> 8 & 0xff),
        register_bits_(in.imm >> 16 & 0xff) {}
  To operator()(From value) const {
    const From extended = extend<FromSigned>(value, from_);
    std::uint64_t result;
    const std::uint64_t top = ~std::uint64_t(0) >> (64 - to_bits_ + ToSigned);
    if (FromSigned && static_cast<std::make_signed_t<From>>(extended) < 0) {
      const auto number = static_cast<std::int64_t>(static_cast<std::make_signed_t<From>>(extended));
      const std::int64_t bottom = ToSigned ? -static_cast<std::int64_t>(top) - 1 : 0;
      result = static_cast<std::uint64_t>(std::max(number, bottom));
    } else {
      result = std::min<std::uint64_t>(extended, top);
    }
    return static_cast<To>(result & (~std::uint64_t(0) >> (64 - register_bits_)));
  }

private:
  unsigned from_, to_bits_, register_bits_;
};

template <template <class, class, bool, bool> class Op, class From, class To>
machine::Handler integer_handler(bool from_signed, bool to_signed) {
  if (from_signed)
    return to_signed ? elementwise<Op<From, To, true, true>, To, From>
                     : elementwise<Op<From, To, true, false>, To, From>;
  return to_signed ? elementwise<Op<From, To, false, true>, To, From>
                   : elementwise<Op<From, To, false, false>, To, From>;
}

template <template <class, class, bool, bool> class Op>
machine::Handler integer_handler(unsigned from_bytes, unsigned to_bytes, bool from_signed, bool to_signed) {
  using W = std::uint32_t;
  using D = std::uint64_t;
  if (from_bytes == 8)
    return to_bytes == 8 ? integer_handler<Op, D, D>(from_signed, to_signed)
                         : integer_handler<Op, D, W>(from_signed, to_signed);
  return to_bytes == 8 ? integer_handler<Op, W, D>(from_signed, to_signed)
                       : integer_handler<Op, W, W>(from_signed, to_signed);
}

/// d = c << 2 * size | a << size | b, with a and b saturated to `size` bits.
struct PackIntegers {
  explicit PackIntegers(const Instruction &in)
      : size_(unsigned(in.imm)), bottom_(in.flags ? -(1 << (size_ - 1)) : 0),
        top_(bottom_ + (1 << size_) - 1) {}
  std::uint32_t operator()(std::int32_t a, std::int32_t b, std::uint32_t c) const {
    const std::uint64_t packed = std::uint64_t(c) << 2 * size_ | field(a) << size_ | field(b);
    return static_cast<std::uint32_t>(packed);
  }
  std::uint32_t operator()(std::int32_t a, std::int32_t b) const { return (*this)(a, b, 0); }

private:
  std::uint64_t field(std::int32_t value) const {
    return std::uint32_t(std::clamp(value, bottom_, top_)) & ((1u << size_) - 1);
  }
  unsigned size_;
  std::int32_t bottom_, top_;
};

} // namespace

unsigned bits_of_type(ptx::Type type) { return 8 * ptx::type_bytes(type); }

bool is_integer(ptx::Type type) {
  using T = ptx::Type;
  return is_signed(type) || type == T::u8 || type == T::u16 || type == T::u32 || type == T::u64;
}

bool bind_integer_to_integer(Binder &b, ptx::Type to, ptx::Type from) {
  expect_operands(b, 2);
  const program::Operand &d = b.operand(0), &a = b.operand(1);
  const bool is_register = a.kind == program::Operand::Kind::reg;
  const unsigned from_lane = is_register ? b.operand_lane_bytes(a) : ptx::type_bytes(from) == 8 ? 8 : 4;
  const unsigned to_lane = d.kind == program::Operand::Kind::sink ? 4 : b.operand_lane_bytes(d);
  if (from_lane > 8 || to_lane > 8 || from_lane < std::min(8u, ptx::type_bytes(from)) ||
      (to_lane == 4 && ptx::type_bytes(to) == 8))
    b.unsupported("a register is too narrow for its type");
  const unsigned register_bits = d.kind == program::Operand::Kind::sink ? 32 : bits_of_type(d.reg.type);
  b.out.op[0] = b.raw_slot(d);
  b.out.op[1] = is_register ? b.raw_slot(a) : b.source_slot(a, from);
  b.out.imm = bits_of_type(from) | bits_of_type(to) << 8 | register_bits << 16;
  b.out.execute = b.has("sat") ? integer_handler<Clamped>(from_lane, to_lane, is_signed(from), is_signed(to))
                               : integer_handler<Extend>(from_lane, to_lane, is_signed(from), is_signed(to));
  return true;
}

bool bind_integer_pack(Binder &b) {
  // pack.sat, the type of the result's fields, that of a and b, and with fields below 16 bits that of c.
  const auto &modifiers = b.source.modifiers;
  const bool has_rest = modifiers.size() == 5;
  if (modifiers.size() < 4 || modifiers[0] != "pack" || modifiers[1] != "sat" || modifiers[3] != "s32" ||
      (has_rest && modifiers[4] != "b32"))
    b.unsupported("it has the form cvt.pack.sat.TYPE.s32, with .b32 for TYPE below 16 bits");
  constexpr std::pair<std::string_view, int> kSizes[] = {{"2", 2}, {"4", 4}, {"8", 8}, {"16", 16}};
  const std::string_view type = modifiers[2];
  const auto size =
      std::ranges::find_if(kSizes, [&](const auto &one) { return one.first == type.substr(1); });
  if ((type[0] != 's' && type[0] != 'u') || size == std::end(kSizes) || has_rest != (size->second < 16))
    b.unsupported("it has the form cvt.pack.sat.TYPE.s32, with .b32 for TYPE below 16 bits");
  b.out.imm = size->second;
  b.out.flags = type[0] == 's';
  return has_rest
             ? bind_elementwise<PackIntegers, std::uint32_t, std::int32_t, std::int32_t, std::uint32_t>(b)
             : bind_elementwise<PackIntegers, std::uint32_t, std::int32_t, std::int32_t>(b);
}

} // namespace ladder::instructions
