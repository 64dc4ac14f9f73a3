// "Logic and Shift Instructions".
#include "instructions/elementwise.h"
#include "instructions/shifts.h"

#include <algorithm>

namespace ladder::instructions {

namespace {

// --- operations on values ----------------------------------------------------------------------------------

struct Cnot {
  template <class T> T operator()(T a) const { return a == 0; }
};

/// Any function of three bits. `imm` is its truth table, indexed by 4a + 2b + c.
struct Lop3 {
  explicit Lop3(const Instruction &in) {
    for (unsigned i = 0; i < 8; ++i)
      bit_[i] = in.imm >> i & 1 ? ~0u : 0;
  }
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    const std::uint32_t b0 = choose(b, choose(c, bit_[3], bit_[2]), choose(c, bit_[1], bit_[0]));
    const std::uint32_t b1 = choose(b, choose(c, bit_[7], bit_[6]), choose(c, bit_[5], bit_[4]));
    return choose(a, b1, b0);
  }

private:
  static std::uint32_t choose(std::uint32_t selector, std::uint32_t one, std::uint32_t zero) {
    return zero ^ (selector & (one ^ zero));
  }
  std::uint32_t bit_[8];
};

struct Shl {
  template <class T> T operator()(T a, std::uint32_t amount) const { return shift_left(a, amount); }
};
struct Shr {
  template <class T> T operator()(T a, std::uint32_t amount) const { return shift_right(a, amount); }
};

/// Upper (left) or lower (right) word of the shifted {b, a}.
template <bool Left, bool Wrap> struct Shf {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    const std::uint32_t amount = Wrap ? c & 31 : std::min(c, 32u);
    const std::uint64_t both = std::uint64_t(b) << 32 | a;
    return static_cast<std::uint32_t>(Left ? (both << amount) >> 32 : both >> amount);
  }
};

// --- predicates: whole masks
// ----------------------------------------------------------------------------------

constexpr std::uint32_t kInvertA = 1, kInvertB = 2; ///< inverts the first source, the second
constexpr std::uint32_t mask_if(bool condition) { return condition ? ~0u : 0; }

// op = d, a, b.
template <class Op> void combine_predicates(Warp &warp, const Instruction &in) {
  const std::uint32_t a = warp.predicate(in.op[1]) ^ mask_if(in.flags & kInvertA);
  const std::uint32_t b = warp.predicate(in.op[2]) ^ mask_if(in.flags & kInvertB);
  warp.set_predicate(in.op[0], Op{}(a, b));
}

void invert_predicate(Warp &warp, const Instruction &in) {
  const std::uint32_t a = warp.predicate(in.op[1]) ^ mask_if(in.flags & kInvertA);
  warp.set_predicate(in.op[0], ~a);
}

void bind_predicates(Binder &b) {
  b.out.op[0] = b.destination_predicate(b.operand(0));
  for (std::size_t i = 1; i < b.operand_count(); ++i) {
    const Binder::Predicate source = b.predicate(b.operand(i));
    b.out.op[i] = source.offset;
    b.out.flags |= !source.negated ? 0 : i == 1 ? kInvertA : kInvertB;
  }
}

template <class Op> bool bind_logic(Binder &b) {
  only(b, {});
  if (b.type() != ptx::Type::pred)
    return bind_binary<Op, Bits>(b);
  expect_operands(b, 3);
  bind_predicates(b);
  b.out.execute = combine_predicates<Op>;
  return true;
}

bool bind_not(Binder &b) {
  only(b, {});
  if (b.type() != ptx::Type::pred)
    return bind_unary<std::bit_not<>, Bits>(b);
  expect_operands(b, 2);
  bind_predicates(b);
  b.out.execute = invert_predicate;
  return true;
}

// --- lop3 --------------------------------------------------------------------------------------------------

constexpr std::uint32_t kOr = 1, kInvertQ = 2; ///< .or if set, else .and

// op = d, a, b, c, p, q; imm: the truth table.
void lop3_with_predicate(Warp &warp, const Instruction &in) {
  const Lop3 lop(in);
  const auto *a = warp.lanes<std::uint32_t>(in.op[1]), *b = warp.lanes<std::uint32_t>(in.op[2]),
             *c = warp.lanes<std::uint32_t>(in.op[3]);
  const std::uint32_t nonzero = lanes_where([=](int lane) { return lop(a[lane], b[lane], c[lane]) != 0; });
  const std::uint32_t q = warp.predicate(in.op[5]) ^ mask_if(in.flags & kInvertQ);
  elementwise<Lop3, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(warp, in);
  warp.set_predicate(in.op[4], in.flags & kOr ? nonzero | q : nonzero & q);
}

bool bind_lop3(Binder &b) {
  only(b, {"or", "and"});
  const bool with_predicate = b.has("or") || b.has("and");
  expect_operands(b, with_predicate ? 6 : 5);
  const program::Operand &table = b.operand(4);
  if (table.kind != program::Operand::Kind::integer || table.bits > 255)
    b.unsupported("the look-up table must be a constant of 0 to 255");
  b.out.imm = static_cast<std::int64_t>(table.bits);
  const program::Operand &d = b.operand(0);
  const bool pair = d.kind == program::Operand::Kind::pair;
  if (pair != with_predicate)
    b.unsupported("a predicate destination goes with .and or .or");
  b.out.op[0] = b.destination_slot(pair ? d.elements.at(0) : d, ptx::Type::b32);
  for (std::size_t i = 1; i <= 3; ++i)
    b.out.op[i] = b.source_slot(i, ptx::Type::b32);
  if (!with_predicate) {
    b.out.execute = elementwise<Lop3, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
    return true;
  }
  b.out.op[4] = b.destination_predicate(d.elements.at(1));
  const Binder::Predicate q = b.predicate(b.operand(5));
  b.out.op[5] = q.offset;
  b.out.flags = (b.has("or") ? kOr : 0) | (q.negated ? kInvertQ : 0);
  b.out.execute = lop3_with_predicate;
  return true;
}

// --- shifts ------------------------------------------------------------------------------------------------

template <class Op, class List> bool bind_shift(Binder &b) {
  return with_type(List{}, b.type(), [&]<class T>() { return bind_elementwise<Op, T, T, std::uint32_t>(b); });
}

bool bind_shf(Binder &b) {
  only(b, {"l", "r", "wrap", "clamp"});
  using W = std::uint32_t;
  if (b.has("l"))
    return b.has("wrap") ? bind_elementwise<Shf<true, true>, W, W, W, W>(b)
                         : bind_elementwise<Shf<true, false>, W, W, W, W>(b);
  return b.has("wrap") ? bind_elementwise<Shf<false, true>, W, W, W, W>(b)
                       : bind_elementwise<Shf<false, false>, W, W, W, W>(b);
}

constexpr TableEntry kTable[] = {
    {"and", bind_logic<std::bit_and<>>},
    {"or", bind_logic<std::bit_or<>>},
    {"xor", bind_logic<std::bit_xor<>>},
    {"not", bind_not},
    {"cnot", plain<bind_unary<Cnot, Bits>>},
    {"lop3", bind_lop3},
    {"shf", bind_shf},
    {"shl", plain<bind_shift<Shl, Bits>>},
    {"shr", plain<bind_shift<Shr, Integers>>},
};

} // namespace

std::span<const TableEntry> logic_table() { return kTable; }

} // namespace ladder::instructions
