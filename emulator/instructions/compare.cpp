// "Comparison and Selection Instructions" and "Half Precision Comparison Instructions".
#include "instructions/elementwise.h"
#include "instructions/float_type.h"

#include <optional>

namespace ladder::instructions {

namespace {

// --- comparisons of values ---------------------------------------------------------------------------------

struct Ordered {
  template <class T> bool operator()(T a, T b) const { return (a == a) & (b == b); }
};
/// Also true for NaNs: neu, ltu, ...
template <class Op> struct Not {
  template <class T> bool operator()(T a, T b) const { return !Op{}(a, b); }
};
/// a < b or b < a: ordered and different.
struct Ne {
  template <class T> bool operator()(T a, T b) const { return (a < b) | (a > b); }
};

/// Reads a lane for comparison: as which type, with .ftz or not.
template <class T, bool Ftz = false> struct Reader {
  using Word = Lane<T>;
  static T read(Word lane) { return flush<Ftz>(from_lane<T>(lane)); }
};
template <class Format, bool Ftz, bool High = false> struct HalfReader {
  using Word = std::uint32_t;
  static float read(Word lane) {
    const std::uint32_t bits = High ? lane >> 16 : lane & 0xffffu;
    return Format::to_float(Ftz && (bits & Format::kInfinity) == 0 ? bits & 0x8000u : bits);
  }
};

/// Bit i of the result is lane i; for packed values bit 32 + i is the second one's. Sources: op[2], op[3].
using Compare = std::uint64_t (*)(Warp &, const Instruction &);

template <class Op, class Read> std::uint64_t compare(Warp &warp, const Instruction &in) {
  const auto *a = warp.lanes<typename Read::Word>(in.op[2]);
  const auto *b = warp.lanes<typename Read::Word>(in.op[3]);
  return lanes_where([=](int lane) { return Op{}(Read::read(a[lane]), Read::read(b[lane])); });
}

template <class Op, class Format, bool Ftz> std::uint64_t compare_packed(Warp &warp, const Instruction &in) {
  return compare<Op, HalfReader<Format, Ftz, false>>(warp, in) |
         compare<Op, HalfReader<Format, Ftz, true>>(warp, in) << 32;
}

/// The binder left the comparison in `imm`.
std::uint64_t compared(Warp &warp, const Instruction &in) {
  return reinterpret_cast<Compare>(in.imm)(warp, in);
}

// --- combining with a predicate ----------------------------------------------------------------------------

// Flags of setp and set.
enum : std::uint32_t { kAnd = 1, kOr = 2, kXor = 3, kCombine = 3, kNegated = 4, kSecond = 8 };

std::uint32_t combine(std::uint32_t flags, std::uint32_t t, std::uint32_t c) {
  if (flags & kNegated)
    c = ~c;
  switch (flags & kCombine) {
  case kAnd:
    return t & c;
  case kOr:
    return t | c;
  case kXor:
    return t ^ c;
  default:
    return t;
  }
}

// setp: op = p, q, a, b, c.
void setp(Warp &warp, const Instruction &in) {
  const auto t = static_cast<std::uint32_t>(compared(warp, in));
  if (in.flags == 0) {
    warp.set_predicate(in.op[0], t);
    return;
  }
  const std::uint32_t c = in.flags & kCombine ? warp.predicate(in.op[4]) : 0;
  warp.set_predicate(in.op[0], combine(in.flags, t, c));
  if (in.flags & kSecond)
    warp.set_predicate(in.op[1], combine(in.flags, ~t, c));
}

/// setp.f16x2 and .bf16x2: p for the low halves, q for the high ones.
void setp_packed(Warp &warp, const Instruction &in) {
  const std::uint64_t t = compared(warp, in);
  const std::uint32_t c = in.flags & kCombine ? warp.predicate(in.op[4]) : 0;
  warp.set_predicate(in.op[0], combine(in.flags, static_cast<std::uint32_t>(t), c));
  warp.set_predicate(in.op[1], combine(in.flags, static_cast<std::uint32_t>(t >> 32), c));
}

// set: op = d, the value for true, a, b, c.
void set(Warp &warp, const Instruction &in) {
  const std::uint32_t c = in.flags & kCombine ? warp.predicate(in.op[4]) : 0;
  const std::uint32_t t = combine(in.flags, static_cast<std::uint32_t>(compared(warp, in)), c);
  const std::uint32_t truth = in.op[1];
  write_lanes<std::uint32_t>(warp.lanes<std::uint32_t>(in.op[0]), warp.active(),
                             [=](int lane) { return t & kLaneBit[unsigned(lane)] ? truth : 0; });
}

void set_packed(Warp &warp, const Instruction &in) {
  const std::uint64_t t = compared(warp, in);
  const std::uint32_t c = in.flags & kCombine ? warp.predicate(in.op[4]) : 0;
  const std::uint32_t low = combine(in.flags, static_cast<std::uint32_t>(t), c);
  const std::uint32_t high = combine(in.flags, static_cast<std::uint32_t>(t >> 32), c);
  const std::uint32_t truth = in.op[1];
  write_lanes<std::uint32_t>(warp.lanes<std::uint32_t>(in.op[0]), warp.active(), [=](int lane) {
    const std::uint32_t bit = kLaneBit[unsigned(lane)];
    return (low & bit ? truth : 0) | (high & bit ? truth << 16 : 0);
  });
}

// --- binding -----------------------------------------------------------------------------------------------

/// Calls f.operator()<Op>() for the comparison that the instruction names.
template <bool Integer, class F> Compare with_comparison(Binder &b, F f) {
  // lo, ls, hi and hs are for unsigned integers, the unordered names for floats.
  const auto is = [&](std::string_view name) { return b.source.modifiers.at(0) == name; };
  if (is("eq"))
    return f.template operator()<std::equal_to<>>();
  if (is("ne"))
    return f.template operator()<std::conditional_t<Integer, Not<std::equal_to<>>, Ne>>();
  if (is("lt") || (Integer && is("lo")))
    return f.template operator()<std::less<>>();
  if (is("le") || (Integer && is("ls")))
    return f.template operator()<std::less_equal<>>();
  if (is("gt") || (Integer && is("hi")))
    return f.template operator()<std::greater<>>();
  if (is("ge") || (Integer && is("hs")))
    return f.template operator()<std::greater_equal<>>();
  if constexpr (!Integer) {
    if (is("equ"))
      return f.template operator()<Not<Ne>>();
    if (is("neu"))
      return f.template operator()<Not<std::equal_to<>>>();
    if (is("ltu"))
      return f.template operator()<Not<std::greater_equal<>>>();
    if (is("leu"))
      return f.template operator()<Not<std::greater<>>>();
    if (is("gtu"))
      return f.template operator()<Not<std::less_equal<>>>();
    if (is("geu"))
      return f.template operator()<Not<std::less<>>>();
    if (is("num"))
      return f.template operator()<Ordered>();
    if (is("nan"))
      return f.template operator()<Not<Ordered>>();
  }
  b.unsupported("a comparison of this name for this type");
}

template <class Read, bool Integer> Compare comparison(Binder &b) {
  return with_comparison<Integer>(b, []<class Op>() -> Compare { return compare<Op, Read>; });
}

template <class Format, bool Ftz> Compare packed_comparison(Binder &b) {
  return with_comparison<false>(b, []<class Op>() -> Compare { return compare_packed<Op, Format, Ftz>; });
}

/// Stores the comparison of values of `type` in `imm`.
void bind_comparison(Binder &b, ptx::Type type) {
  using ptx::Type;
  const bool ftz = b.has("ftz");
  const auto function = [&]() -> Compare {
    Compare found = nullptr;
    if (with_type(Integers{}, type, [&]<class T>() { return found = comparison<Reader<T>, true>(b); }))
      return found;
    switch (type) {
    case Type::f32:
      return ftz ? comparison<Reader<float, true>, false>(b) : comparison<Reader<float>, false>(b);
    case Type::f64:
      return comparison<Reader<double>, false>(b);
    case Type::f16:
      return ftz ? comparison<HalfReader<Half, true>, false>(b)
                 : comparison<HalfReader<Half, false>, false>(b);
    case Type::bf16:
      return comparison<HalfReader<BFloat, false>, false>(b);
    case Type::f16x2:
      return ftz ? packed_comparison<Half, true>(b) : packed_comparison<Half, false>(b);
    case Type::bf16x2:
      return packed_comparison<BFloat, false>(b);
    default:
      b.unsupported("a comparison of this type");
    }
  };
  b.out.imm = reinterpret_cast<std::intptr_t>(function());
}

void check_modifiers(Binder &b) {
  only(b, {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "lo",  "ls",  "hi", "hs",  "equ",
           "neu", "ltu", "leu", "gtu", "geu", "num", "nan", "and", "or", "xor", "ftz"});
}

/// Binds the operands of a comparison and, if there is a boolean operator, the predicate at the end.
void bind_sources(Binder &b, ptx::Type type) {
  b.out.op[2] = b.source_slot(1, type);
  b.out.op[3] = b.source_slot(2, type);
  b.out.flags = b.has("and") ? kAnd : b.has("or") ? kOr : b.has("xor") ? kXor : 0u;
  expect_operands(b, b.out.flags ? 4 : 3);
  if (b.out.flags) {
    const Binder::Predicate c = b.predicate(b.operand(3));
    b.out.op[4] = c.offset;
    if (c.negated)
      b.out.flags |= kNegated;
  }
}

bool is_packed(ptx::Type type) { return type == ptx::Type::f16x2 || type == ptx::Type::bf16x2; }

void check_half(Binder &b, ptx::Type type) {
  if (type == ptx::Type::bf16 || type == ptx::Type::bf16x2)
    since(b, 90);
}

bool bind_setp(Binder &b) {
  check_modifiers(b);
  const ptx::Type type = b.type();
  check_half(b, type);
  bind_sources(b, type);
  const program::Operand &d = b.operand(0);
  const bool pair = d.kind == program::Operand::Kind::pair;
  b.out.op[0] = b.destination_predicate(pair ? d.elements.at(0) : d);
  if (pair) {
    b.out.op[1] = b.destination_predicate(d.elements.at(1));
    b.out.flags |= kSecond;
  } else if (is_packed(type)) {
    b.unsupported("a comparison of two values needs two destinations");
  }
  bind_comparison(b, type);
  b.out.execute = is_packed(type) ? setp_packed : setp;
  return true;
}

bool bind_set(Binder &b) {
  using ptx::Type;
  check_modifiers(b);
  const Type result = b.type(0), type = b.type(1);
  check_half(b, type);
  bind_sources(b, type);
  switch (result) {
  case Type::f32:
    b.out.op[1] = 0x3f800000;
    break;
  case Type::f16:
  case Type::f16x2:
    b.out.op[1] = Half::kOne;
    break;
  case Type::bf16:
  case Type::bf16x2:
    b.out.op[1] = BFloat::kOne;
    break;
  case Type::u16:
  case Type::s16:
    b.out.op[1] = 0xffff;
    break;
  case Type::u32:
  case Type::s32:
    b.out.op[1] = is_packed(type) ? 0xffff : 0xffffffff;
    break;
  default:
    b.unsupported("a result of this type");
  }
  b.out.op[0] = b.destination_slot(0, result);
  bind_comparison(b, type);
  b.out.execute = is_packed(type) ? set_packed : set;
  return true;
}

// --- selection ---------------------------------------------------------------------------------------------

// selp: op = d, a, b, p; flags: XOR mask of p.
template <class Word> void selp(Warp &warp, const Instruction &in) {
  const std::uint32_t chosen = warp.predicate(in.op[3]) ^ in.flags;
  const Word *a = warp.lanes<Word>(in.op[1]), *b = warp.lanes<Word>(in.op[2]);
  write_lanes<Word>(warp.lanes<Word>(in.op[0]), warp.active(), [=](int lane) {
    const Word one = a[lane], other = b[lane];
    return chosen & kLaneBit[unsigned(lane)] ? one : other;
  });
}

bool bind_selp(Binder &b) {
  only(b, {});
  expect_operands(b, 4);
  const ptx::Type type = b.type();
  const Binder::Predicate p = b.predicate(b.operand(3));
  b.out.op[0] = b.destination_slot(0, type);
  b.out.op[1] = b.source_slot(1, type);
  b.out.op[2] = b.source_slot(2, type);
  b.out.op[3] = p.offset;
  b.out.flags = p.negated ? ~0u : 0;
  b.out.execute = ptx::type_bytes(type) == 8 ? selp<std::uint64_t> : selp<std::uint32_t>;
  return true;
}

/// a if c >= 0, else b (also for a NaN).
template <bool Ftz> struct Slct {
  template <class T, class C> T operator()(T a, T b, C c) const { return flush<Ftz>(c) >= 0 ? a : b; }
};

bool bind_slct(Binder &b) {
  only(b, {"ftz"});
  expect_operands(b, 4);
  const ptx::Type type = b.type(0), chooser = b.type(1);
  const bool wide = ptx::type_bytes(type) == 8;
  b.out.op[0] = b.destination_slot(0, type);
  b.out.op[1] = b.source_slot(1, type);
  b.out.op[2] = b.source_slot(2, type);
  b.out.op[3] = b.source_slot(3, chooser);
  if (chooser != ptx::Type::s32 && chooser != ptx::Type::f32)
    b.unsupported("a choice by this type");
  with_type(Types<std::uint32_t, std::uint64_t>{}, wide ? ptx::Type::b64 : ptx::Type::b32, [&]<class T>() {
    b.out.execute = chooser == ptx::Type::s32 ? elementwise<Slct<false>, T, T, T, std::int32_t>
                    : b.has("ftz")            ? elementwise<Slct<true>, T, T, T, float>
                                              : elementwise<Slct<false>, T, T, T, float>;
    return true;
  });
  return true;
}

constexpr TableEntry kTable[] = {
    {"setp", bind_setp},
    {"set", bind_set},
    {"selp", bind_selp},
    {"slct", bind_slct},
};

} // namespace

std::span<const TableEntry> compare_table() { return kTable; }

} // namespace ladder::instructions
