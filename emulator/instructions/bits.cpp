// The "Integer Arithmetic Instructions" that count, find, reverse, extract and insert bits.
#include "instructions/elementwise.h"
#include "instructions/shifts.h"

#include <algorithm>
#include <cmath>

namespace ladder::instructions {

namespace {

// --- operations on values ----------------------------------------------------------------------------------

/// Sums neighbouring bit fields: vectorises without a special instruction.
struct Popc {
  template <class T> std::uint32_t operator()(T a) const {
    a = a - (a >> 1 & T(0x5555555555555555u));
    a = (a & T(0x3333333333333333u)) + (a >> 2 & T(0x3333333333333333u));
    a = (a + (a >> 4)) & T(0x0f0f0f0f0f0f0f0fu);
    a += a >> 8;
    a += a >> 16;
    if constexpr (sizeof(T) == 8)
      a += a >> 32;
    return static_cast<std::uint32_t>(a & 127);
  }
};
struct Clz {
  template <class T> std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
template <bool ShiftAmount> struct Bfind {
  template <class T> std::uint32_t operator()(T a) const {
    const auto bits = static_cast<Unsigned<T>>(std::is_signed_v<T> && a < 0 ? ~a : a);
    const auto zeros = static_cast<std::uint32_t>(std::countl_zero(bits));
    const std::uint32_t found = ShiftAmount ? zeros : 8 * sizeof(T) - 1 - zeros;
    return bits == 0 ? 0xffffffffu : found;
  }
};
struct Brev {
  template <class T> T operator()(T a) const {
    a = swap<T>(a, 1, T(0x5555555555555555u));
    a = swap<T>(a, 2, T(0x3333333333333333u));
    a = swap<T>(a, 4, T(0x0f0f0f0f0f0f0f0fu));
    a = swap<T>(a, 8, T(0x00ff00ff00ff00ffu));
    a = swap<T>(a, 16, T(0x0000ffff0000ffffu));
    if constexpr (sizeof(T) == 8)
      a = swap<T>(a, 32, T(0x00000000ffffffffu));
    return a;
  }
  template <class T> static T swap(T a, int width, T low) {
    return static_cast<T>((a >> width & low) | (a & low) << width);
  }
};

struct Bfe {
  template <class T> T operator()(T a, std::uint32_t position, std::uint32_t length) const {
    constexpr std::uint32_t kBits = 8 * sizeof(T);
    position &= 0xff;
    length &= 0xff;
    // Shift the field's top bit to the top of the register, then back down with the sign.
    const std::uint32_t end = std::min(position + length, kBits);
    const T top = shift_left(a, kBits - end);
    const std::uint32_t down = kBits - end + std::min(position, kBits);
    // A field that starts past the register consists of sign bits only.
    const T beyond = std::is_signed_v<T> ? static_cast<T>(a >> (kBits - 1)) : T(0);
    const T field = position >= kBits ? beyond : shift_right(top, down);
    return length == 0 ? T(0) : field;
  }
};
struct Bfi {
  template <class T> T operator()(T a, T b, std::uint32_t position, std::uint32_t length) const {
    position &= 0xff;
    length &= 0xff;
    const T ones = static_cast<T>(shift_left(T(1), length) - 1); // length >= 32: 0 - 1
    const T mask = shift_left(ones, position);
    return static_cast<T>((b & ~mask) | (shift_left(a, position) & mask));
  }
};

struct Fns {
  static constexpr bool is_scalar = true;
  std::uint32_t operator()(std::uint32_t mask, std::uint32_t base, std::int32_t offset) const {
    if (offset == 0)
      return base < 32 && (mask >> base & 1) ? base : 0xffffffffu;
    std::int64_t left = std::abs(std::int64_t(offset));
    const int step = offset > 0 ? 1 : -1;
    for (std::int64_t position = base; position >= 0 && position < 32; position += step)
      if ((mask >> position & 1) && --left == 0)
        return static_cast<std::uint32_t>(position);
    return 0xffffffffu;
  }
};

constexpr std::uint32_t kWrap = 1, kSigned = 2; ///< flags of szext and bmsk

struct Szext {
  explicit Szext(const Instruction &in) : wrap_(in.flags & kWrap), is_signed_(in.flags & kSigned) {}
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    const std::uint32_t bits = b & 31;
    const std::uint32_t mask = b >= 32 && !wrap_ ? 0 : ~0u << bits;
    const bool sign = is_signed_ && bits != 0 && mask != 0 && (a >> ((bits - 1) & 31) & 1);
    return (a & ~mask) | (sign ? mask : 0);
  }

private:
  bool wrap_, is_signed_;
};

struct Bmsk {
  explicit Bmsk(const Instruction &in) : wrap_(in.flags & kWrap) {}
  std::uint32_t operator()(std::uint32_t position, std::uint32_t width) const {
    if (wrap_) {
      position &= 31;
      width &= 31;
    }
    const std::uint32_t ones = shift_left(1u, width) - 1;
    return shift_left(ones, position);
  }

private:
  bool wrap_;
};

// --- binding -----------------------------------------------------------------------------------------------

/// popc clz bfind: the result is .u32.
template <class Op, class List> bool bind_count(Binder &b) {
  return with_type(List{}, b.type(), [&]<class T>() { return bind_elementwise<Op, std::uint32_t, T>(b); });
}

bool bind_bfind(Binder &b) {
  only(b, {"shiftamt"});
  return b.has("shiftamt") ? bind_count<Bfind<true>, WideIntegers>(b)
                           : bind_count<Bfind<false>, WideIntegers>(b);
}

bool bind_bfe(Binder &b) {
  return with_type(WideIntegers{}, b.type(),
                   [&]<class T>() { return bind_elementwise<Bfe, T, T, std::uint32_t, std::uint32_t>(b); });
}

bool bind_bfi(Binder &b) {
  return with_type(Types<std::uint32_t, std::uint64_t>{}, b.type(), [&]<class T>() {
    return bind_elementwise<Bfi, T, T, T, std::uint32_t, std::uint32_t>(b);
  });
}

bool bind_fns(Binder &b) {
  return bind_elementwise<Fns, std::uint32_t, std::uint32_t, std::uint32_t, std::int32_t>(b);
}

bool bind_szext(Binder &b) {
  only(b, {"clamp", "wrap"});
  b.out.flags = (b.has("wrap") ? kWrap : 0) | (b.type() == ptx::Type::s32 ? kSigned : 0);
  return bind_elementwise<Szext, std::uint32_t, std::uint32_t, std::uint32_t>(b);
}

bool bind_bmsk(Binder &b) {
  only(b, {"clamp", "wrap"});
  b.out.flags = b.has("wrap") ? kWrap : 0;
  return bind_elementwise<Bmsk, std::uint32_t, std::uint32_t, std::uint32_t>(b);
}

using Bits32And64 = Types<std::uint32_t, std::uint64_t>;

constexpr TableEntry kTable[] = {
    {"popc", plain<bind_count<Popc, Bits32And64>>},
    {"clz", plain<bind_count<Clz, Bits32And64>>},
    {"bfind", bind_bfind},
    {"brev", plain<bind_unary<Brev, Bits32And64>>},
    {"bfe", plain<bind_bfe>},
    {"bfi", plain<bind_bfi>},
    {"fns", plain<bind_fns>},
    {"szext", bind_szext},
    {"bmsk", bind_bmsk},
};

} // namespace

std::span<const TableEntry> bits_table() { return kTable; }

} // namespace ladder::instructions
