// "Data Movement and Conversion Instructions": mov, prmt, cvta and isspacep.
#include "instructions/addressing.h"
#include "instructions/elementwise.h"
#include "machine/address_space.h"

#include <chrono>

namespace ladder::instructions {

namespace {

using program::Operand;
using program::Special;
using ptx::Type;

constexpr std::size_t kWideLaneBytes = 32 * sizeof(std::uint64_t); // one half of a .b128 register

// --- mov of one value --------------------------------------------------------------------------------------

struct Same {
  template <class T> T operator()(T a) const { return a; }
};

// op = d, a; flags: XOR mask of a.
void move_predicate(Warp &warp, const Instruction &in) {
  warp.set_predicate(in.op[0], warp.predicate(in.op[1]) ^ in.flags);
}

void move_b128(Warp &warp, const Instruction &in) {
  for (const std::size_t half : {std::size_t(0), kWideLaneBytes}) {
    const auto *a = warp.lanes<std::uint64_t>(std::uint32_t(in.op[1] + half));
    write_lanes<std::uint64_t>(warp.lanes<std::uint64_t>(std::uint32_t(in.op[0] + half)), warp.active(),
                               [=](int lane) { return a[lane]; });
  }
}

/// Writes one value to all active lanes.
template <class Word> void broadcast(Warp &warp, const Instruction &in, std::uint64_t value) {
  write_lanes<Word>(warp.lanes<Word>(in.op[0]), warp.active(), [=](int) { return static_cast<Word>(value); });
}

/// An address in the current call's local variables: their start plus `imm`.
template <class Word> void move_local_address(Warp &warp, const Instruction &in) {
  broadcast<Word>(warp, in, warp.frame().local_base + static_cast<std::uint64_t>(in.imm));
}

/// Clock registers. Time is not emulated: the SM clock counts the instructions that this warp has issued; the
/// global timer is the host's, in nanoseconds.
template <class Word, bool Global, unsigned Shift> void move_clock(Warp &warp, const Instruction &in) {
  std::uint64_t now = warp.clock();
  if constexpr (Global)
    now = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                         std::chrono::system_clock::now().time_since_epoch())
                                         .count());
  broadcast<Word>(warp, in, now >> Shift);
}

/// Handler for a special register that changes while a warp runs; nullptr for the others.
machine::Handler clock_handler(Special special, bool wide) {
  using W = std::uint32_t;
  using D = std::uint64_t;
  struct Clock {
    Special special;
    bool wide;
    machine::Handler handler;
  };
  constexpr Clock kClocks[] = {
      {Special::clock, false, move_clock<W, false, 0>},
      {Special::clock_hi, false, move_clock<W, false, 32>},
      {Special::clock64, true, move_clock<D, false, 0>},
      {Special::globaltimer, true, move_clock<D, true, 0>},
      {Special::globaltimer_lo, false, move_clock<W, true, 0>},
      {Special::globaltimer_hi, false, move_clock<W, true, 32>},
  };
  for (const Clock &clock : kClocks)
    if (clock.special == special && clock.wide == wide)
      return clock.handler;
  return nullptr;
}

/// Binds a variable address that depends on the call; returns false for other operands.
bool bind_local_address(Binder &b, const Operand &a, bool wide) {
  if (a.kind != Operand::Kind::symbol && a.kind != Operand::Kind::parameter)
    return false;
  const Binder::Address address = b.address(a);
  if (address.base == Binder::Address::Base::param_area)
    b.unsupported("the address of a function's parameter");
  if (address.base != Binder::Address::Base::local_frame)
    return false;
  b.out.imm = address.offset;
  b.out.execute = wide ? move_local_address<std::uint64_t> : move_local_address<std::uint32_t>;
  return true;
}

// --- mov with vectors: pack and unpack ---------------------------------------------------------------------

/// op[0] = {op[1], op[2], ...}, elements of Bits bits.
template <class Word, unsigned Count, unsigned Bits> void pack(Warp &warp, const Instruction &in) {
  using Element = std::conditional_t<Bits == 64, std::uint64_t, std::uint32_t>;
  const Element *parts[Count];
  for (unsigned i = 0; i < Count; ++i)
    parts[i] = warp.lanes<Element>(in.op[1 + i]);
  write_lanes<Word>(warp.lanes<Word>(in.op[0]), warp.active(), [=](int lane) {
    Word word = 0;
    for (unsigned i = 0; i < Count; ++i)
      word |= static_cast<Word>(parts[i][lane]) << (i * Bits);
    return word;
  });
}

/// {op[1], op[2], ...} = op[0]
template <class Word, unsigned Count, unsigned Bits> void unpack(Warp &warp, const Instruction &in) {
  using Element = std::conditional_t<Bits == 64, std::uint64_t, std::uint32_t>;
  constexpr Word kMask = Word(~Word(0)) >> (8 * sizeof(Word) - Bits);
  const Word *a = warp.lanes<Word>(in.op[0]);
  for (unsigned i = 0; i < Count; ++i)
    write_lanes<Element>(warp.lanes<Element>(in.op[1 + i]), warp.active(),
                         [=](int lane) { return static_cast<Element>(a[lane] >> (i * Bits) & kMask); });
}

// .b128: one half after the other, each of one or two elements.
template <bool Pack, unsigned Count> void move_b128_elements(Warp &warp, const Instruction &in) {
  constexpr unsigned kEach = Count / 2;
  for (unsigned half = 0; half < 2; ++half) {
    Instruction one = in;
    one.op[0] = in.op[0] + half * std::uint32_t(kWideLaneBytes);
    for (unsigned i = 0; i < kEach; ++i)
      one.op[1 + i] = in.op[1 + half * kEach + i];
    if constexpr (Pack)
      pack<std::uint64_t, kEach, 64 / kEach>(warp, one);
    else
      unpack<std::uint64_t, kEach, 64 / kEach>(warp, one);
  }
}

/// Moves between a register of `bits` and `count` elements; nullptr if there is none.
machine::Handler vector_handler(unsigned bits, std::size_t count, bool packs) {
  using W = std::uint32_t;
  using D = std::uint64_t;
  struct Move {
    unsigned bits, count;
    machine::Handler pack, unpack;
  };
  constexpr Move kMoves[] = {{16, 2, pack<W, 2, 8>, unpack<W, 2, 8>},
                             {32, 2, pack<W, 2, 16>, unpack<W, 2, 16>},
                             {64, 2, pack<D, 2, 32>, unpack<D, 2, 32>},
                             {128, 2, move_b128_elements<true, 2>, move_b128_elements<false, 2>},
                             {32, 4, pack<W, 4, 8>, unpack<W, 4, 8>},
                             {64, 4, pack<D, 4, 16>, unpack<D, 4, 16>},
                             {128, 4, move_b128_elements<true, 4>, move_b128_elements<false, 4>}};
  for (const Move &move : kMoves)
    if (move.bits == bits && move.count == count)
      return packs ? move.pack : move.unpack;
  return nullptr;
}

Type bits_type(unsigned bits) {
  return bits == 8 ? Type::b8 : bits == 16 ? Type::b16 : bits == 32 ? Type::b32 : Type::b64;
}

std::uint32_t b128_slot(Binder &b, const Operand &operand) {
  if (operand.kind != Operand::Kind::reg || operand.reg.type != Type::b128)
    b.unsupported("an operand is not a .b128 register");
  return b.raw_slot(operand);
}

bool bind_vector_move(Binder &b, bool packs) {
  const Operand &vector = b.operand(packs ? 1 : 0), &whole = b.operand(packs ? 0 : 1);
  const Type type = b.type();
  const unsigned bits = 8 * ptx::type_bytes(type);
  const std::size_t count = vector.elements.size();
  b.out.execute = vector_handler(bits, count, packs);
  if (!b.out.execute)
    b.unsupported("a vector of this many elements");
  b.out.op[0] = type == Type::b128 ? b128_slot(b, whole)
                : packs            ? b.destination_slot(whole, type)
                                   : b.source_slot(whole, type);
  const Type element = bits_type(bits / unsigned(count));
  for (std::size_t i = 0; i < count; ++i)
    b.out.op[1 + i] =
        packs ? b.source_slot(vector.elements[i], element) : b.destination_slot(vector.elements[i], element);
  return true;
}

// --- mov ---------------------------------------------------------------------------------------------------

bool bind_mov(Binder &b) {
  only(b, {});
  expect_operands(b, 2);
  const Operand &d = b.operand(0), &a = b.operand(1);
  const Type type = b.type();
  if (d.kind == Operand::Kind::vector || a.kind == Operand::Kind::vector)
    return bind_vector_move(b, a.kind == Operand::Kind::vector);
  if (type == Type::pred) {
    const Binder::Predicate source = b.predicate(a);
    b.out.op[0] = b.destination_predicate(d);
    b.out.op[1] = source.offset;
    b.out.flags = source.negated ? ~0u : 0;
    b.out.execute = move_predicate;
    return true;
  }
  if (type == Type::b128) {
    b.out.op[0] = b128_slot(b, d);
    b.out.op[1] = b128_slot(b, a);
    b.out.execute = move_b128;
    return true;
  }
  const bool wide = ptx::type_bytes(type) == 8;
  b.out.op[0] = b.destination_slot(d, type);
  if (bind_local_address(b, a, wide))
    return true;
  if (a.kind == Operand::Kind::special) {
    b.out.execute = clock_handler(a.special, wide);
    if (b.out.execute)
      return true;
  }
  b.out.op[1] = b.source_slot(a, type);
  b.out.execute = wide ? elementwise<Same, std::uint64_t, std::uint64_t>
                       : elementwise<Same, std::uint32_t, std::uint32_t>;
  return true;
}

// --- prmt --------------------------------------------------------------------------------------------------

/// Byte i of the result is byte (selector >> 4i & 7) of {b, a}; if selector bit 4i + 3 is set, its sign bit
/// replicated.
std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t(b) << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t choice = selector >> (4 * i) & 15u;
    const auto byte = static_cast<std::uint32_t>(bytes >> (8 * (choice & 7u))) & 0xffu;
    const std::uint32_t sign = byte & 0x80u ? 0xffu : 0u;
    result |= (choice & 8u ? sign : byte) << (8 * i);
  }
  return result;
}

struct Permute {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    return permute(a, b, c);
  }
};
/// The selector is the same for all lanes, in `imm`.
struct PermuteConstant {
  explicit PermuteConstant(const Instruction &in) : selector_(static_cast<std::uint32_t>(in.imm)) {}
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return permute(a, b, selector_); }

private:
  std::uint32_t selector_;
};

/// Modes: the selector for each value of c's two low bits.
struct PermuteMode {
  std::string_view name;
  std::uint16_t selectors[4];
};
constexpr PermuteMode kPermuteModes[] = {
    {"f4e", {0x3210, 0x4321, 0x5432, 0x6543}},  // forward 4 extract
    {"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},  // backward 4 extract
    {"rc8", {0x0000, 0x1111, 0x2222, 0x3333}},  // replicate 8
    {"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},  // edge clamp left
    {"ecr", {0x0000, 0x1110, 0x2210, 0x3210}},  // edge clamp right
    {"rc16", {0x1010, 0x3232, 0x1010, 0x3232}}, // replicate 16
};
struct PermuteByMode {
  explicit PermuteByMode(const Instruction &in) : selectors_(kPermuteModes[in.flags].selectors) {}
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    return permute(a, b, selectors_[c & 3]);
  }

private:
  const std::uint16_t *selectors_;
};

bool bind_prmt(Binder &b) {
  only(b, {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  using W = std::uint32_t;
  for (std::uint32_t mode = 0; mode < std::size(kPermuteModes); ++mode)
    if (b.has(kPermuteModes[mode].name)) {
      b.out.flags = mode;
      return bind_elementwise<PermuteByMode, W, W, W, W>(b);
    }
  bind_elementwise<Permute, W, W, W, W>(b);
  if (b.operand(3).kind == Operand::Kind::integer) {
    b.out.imm = static_cast<std::int64_t>(b.operand(3).bits);
    b.out.execute = elementwise<PermuteConstant, W, W, W>;
  }
  return true;
}

// --- generic addresses -------------------------------------------------------------------------------------

/// Global and constant variables live in host memory: their generic address is their address.
std::int64_t window_begin(Binder &b, Space space) {
  switch (space) {
  case Space::generic:
    b.unsupported("a state space is missing");
  case Space::shared:
    return machine::kSharedWindow;
  case Space::local:
    return machine::kLocalWindow;
  case Space::param:
    return machine::kParamWindow;
  default:
    return 0;
  }
}

struct AddImmediate {
  explicit AddImmediate(const Instruction &in) : imm_(std::uint64_t(in.imm)) {}
  std::uint64_t operator()(std::uint64_t a) const { return a + imm_; }

private:
  std::uint64_t imm_;
};

bool bind_cvta(Binder &b) {
  only(b, {"to", "global", "const", "shared", "shared::cta", "shared::cluster", "local", "param",
           "param::entry"});
  const std::int64_t begin = window_begin(b, space_of(b));
  if (b.type() != Type::u64)
    b.unsupported("addresses are 64-bit");
  expect_operands(b, 2);
  const Operand &a = b.operand(1);
  b.out.op[0] = b.destination_slot(0, Type::u64);
  if (bind_local_address(b, a, true)) {
    b.out.imm += begin;
    return true;
  }
  b.out.imm = b.has("to") ? -begin : begin;
  b.out.op[1] = b.source_slot(a, Type::u64);
  b.out.execute = elementwise<AddImmediate, std::uint64_t, std::uint64_t>;
  return true;
}

// op = p, a; imm: the window's start. Parameters count as global.
template <bool Global> void is_in_window(Warp &warp, const Instruction &in) {
  const auto *a = warp.lanes<std::uint64_t>(in.op[1]);
  const auto begin = static_cast<std::uint64_t>(in.imm);
  warp.set_predicate(in.op[0], lanes_where([=](int lane) {
                       const std::uint64_t window = a[lane] & machine::kWindowMask;
                       return Global ? (window == 0) | (window == machine::kParamWindow) : window == begin;
                     }));
}

bool bind_isspacep(Binder &b) {
  only(b, {"global", "const", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry"});
  const Space space = space_of(b);
  if (space == Space::constant)
    b.unsupported("constant variables have no window of their own");
  expect_operands(b, 2);
  b.out.op[0] = b.destination_predicate(b.operand(0));
  b.out.op[1] = b.source_slot(1, Type::u64);
  b.out.imm = window_begin(b, space);
  b.out.execute = space == Space::global ? is_in_window<true> : is_in_window<false>;
  return true;
}

constexpr TableEntry kTable[] = {
    {"mov", bind_mov},
    {"prmt", bind_prmt},
    {"cvta", bind_cvta},
    {"isspacep", bind_isspacep},
};

} // namespace

std::span<const TableEntry> move_table() { return kTable; }

} // namespace ladder::instructions
