// Exchanges between the lanes of a warp: shfl, vote, match, redux, activemask, elect.
//
// The .sync forms name their members. Lanes of one path may name different sets (tiles of a warp), which are
// served separately; a path first waits for the missing lanes of its sets.
#include "instructions/shuffle.h"

#include "instructions/elementwise.h"
#include "machine/fault.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace ladder::instructions {

namespace {

using machine::FaultError;
using machine::FaultKind;

// --- members -----------------------------------------------------------------------------------------------

void bind_members(Binder &b, std::size_t operand) {
  if (!b.has("sync")) {
    b.out.op[kMembers] = kNoMembers;
    return;
  }
  const program::Operand &members = b.operand(operand);
  const std::uint32_t slot = b.source_slot(members, ptx::Type::b32);
  const bool constant = members.kind == program::Operand::Kind::integer;
  b.out.op[kMembers] = constant ? kConstantMembers : slot;
  b.out.imm = constant ? static_cast<std::int64_t>(members.bits & 0xffffffffu) : 0;
}

/// Union of the members that the active lanes name. In a warp that has not diverged, an H200 lets lanes take
/// part that the mask omits. In a diverged warp it traps with an illegal instruction.
std::uint32_t named_members(Warp &warp, const Instruction &in) {
  const std::uint32_t active = warp.active();
  std::uint32_t members = static_cast<std::uint32_t>(in.imm), outside = active & ~members;
  if (in.op[kMembers] != kConstantMembers) {
    const auto *masks = warp.lanes<std::uint32_t>(in.op[kMembers]);
    members = 0;
    LADDER_LANES_ARE_INDEPENDENT
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint32_t mask = masks[lane];
      members |= active & kLaneBit[unsigned(lane)] ? mask : 0;
    }
    outside = active & lanes_where([=](int lane) { return (masks[lane] & kLaneBit[unsigned(lane)]) == 0; });
  }
  if (outside && warp.path_mask() != warp.live())
    throw FaultError(FaultKind::bad_operand, "the thread is not in the member mask of the instruction",
                     std::countr_zero(outside));
  return members | outside;
}

[[noreturn]] void refuse_meeting(const Warp &warp) {
  throw FaultError(
      FaultKind::unsupported,
      "the lanes of the member mask execute different instructions. The hardware allows that for "
      "instructions of one kind, the emulator only for shfl.sync: let all of them execute the "
      "same instruction",
      std::countr_zero(warp.active()));
}

/// Returns false if the path must wait for members; the handler must then return at once.
bool members_are_here(Warp &warp, const Instruction &in) {
  if (in.op[kMembers] == kNoMembers)
    return true;
  const std::uint32_t members = named_members(warp, in);
  if (!warp.converge(members))
    return false;
  if (members & warp.live() & ~warp.path_mask())
    refuse_meeting(warp);
  return true;
}

/// Calls f(lanes) for each set of active lanes that exchange with each other.
template <class F> void for_each_group(Warp &warp, const Instruction &in, F f) {
  std::uint32_t left = warp.active();
  if (in.op[kMembers] == kNoMembers || in.op[kMembers] == kConstantMembers)
    return f(left);
  const auto *masks = warp.lanes<std::uint32_t>(in.op[kMembers]);
  while (left) {
    const std::uint32_t members = masks[std::countr_zero(left)];
    const std::uint32_t group = left & lanes_where([=](int lane) { return masks[lane] == members; });
    f(group);
    left &= ~group;
  }
}

// --- shfl --------------------------------------------------------------------------------------------------

/// Collects in `value` what each lane contributes: the path's own lanes, and members at another shuffle.
/// Returns false if the path must first wait for them.
bool gather(Warp &warp, const Instruction &in, std::uint32_t (&value)[32]) {
  std::copy_n(warp.lanes<std::uint32_t>(in.op[2]), 32, value);
  if (in.op[kMembers] == kNoMembers)
    return true;
  const std::uint32_t members = named_members(warp, in);
  const std::uint32_t elsewhere = members & warp.live() & ~warp.path_mask();
  if (elsewhere && !warp.released()) {
    machine::Offer offer{.lanes = warp.active()};
    std::copy_n(value, 32, offer.value);
    warp.offer(offer);
  }
  if (!warp.converge(members))
    return false;
  if (elsewhere == 0)
    return true;
  const std::shared_ptr<const machine::Offer> offers = warp.take_offers();
  if (!offers)
    refuse_meeting(warp);
  blend_lanes(value, offers->value, offers->lanes & elsewhere);
  return true;
}

// op = d, p, a, ...
void exchange(Warp &warp, const Instruction &in, const std::uint32_t *sources) {
  std::uint32_t value[32]; // copy: the destination may be the source
  if (!gather(warp, in, value))
    return;
  write_lanes<std::uint32_t>(warp.lanes<std::uint32_t>(in.op[0]), warp.active(),
                             [&](int lane) { return value[sources[lane] & 31]; });
  if (in.flags & kWritesPredicate)
    warp.set_predicate(in.op[1], lanes_where([=](int lane) { return sources[lane] < 32; }));
}

// op = d, p, a, b, c, members
template <Shuffle Mode> void shfl(Warp &warp, const Instruction &in) {
  const auto *b = warp.lanes<std::uint32_t>(in.op[3]), *c = warp.lanes<std::uint32_t>(in.op[4]);
  std::uint32_t sources[32];
  LADDER_LANES_ARE_INDEPENDENT
  for (int lane = 0; lane < 32; ++lane)
    sources[lane] = source_lane(Mode, lane, b[lane], c[lane]);
  exchange(warp, in, sources);
}

/// With constant b and c; Code::more holds the source lanes.
void shfl_constant(Warp &warp, const Instruction &in) { exchange(warp, in, warp.more(in)); }

template <Shuffle Mode> void bind_sources(Binder &b) {
  const program::Operand &offset = b.operand(2), &clamp = b.operand(3);
  b.out.flags |= std::uint32_t(Mode) << kShuffleShift;
  b.out.execute = shfl<Mode>;
  if (offset.kind != program::Operand::Kind::integer || clamp.kind != program::Operand::Kind::integer)
    return;
  std::vector<std::uint32_t> sources;
  for (int lane = 0; lane < 32; ++lane)
    sources.push_back(source_lane(Mode, lane, static_cast<std::uint32_t>(offset.bits),
                                  static_cast<std::uint32_t>(clamp.bits)));
  b.set_more(sources);
  b.out.execute = shfl_constant;
}

bool bind_shfl(Binder &b) {
  only(b, {"sync", "up", "down", "bfly", "idx"});
  expect_operands(b, b.has("sync") ? 5 : 4);
  const program::Operand &d = b.operand(0);
  const bool pair = d.kind == program::Operand::Kind::pair;
  b.out.op[0] = b.destination_slot(pair ? d.elements.at(0) : d, ptx::Type::b32);
  if (pair) {
    b.out.op[1] = b.destination_predicate(d.elements.at(1));
    b.out.flags = kWritesPredicate;
  }
  for (std::size_t i = 1; i <= 3; ++i)
    b.out.op[i + 1] = b.source_slot(i, ptx::Type::b32);
  bind_members(b, 4);
  if (b.has("up"))
    bind_sources<Shuffle::up>(b);
  else if (b.has("down"))
    bind_sources<Shuffle::down>(b);
  else if (b.has("bfly"))
    bind_sources<Shuffle::bfly>(b);
  else
    bind_sources<Shuffle::idx>(b);
  return true;
}

// --- vote --------------------------------------------------------------------------------------------------

enum class Vote { all, any, uni, ballot };

// op = d, a; flags: XOR mask of a.
template <Vote Mode> void vote(Warp &warp, const Instruction &in) {
  if (!members_are_here(warp, in))
    return;
  const std::uint32_t values = warp.predicate(in.op[1]) ^ in.flags;
  std::uint32_t result = 0;
  for_each_group(warp, in, [&](std::uint32_t group) {
    const std::uint32_t set = values & group;
    if constexpr (Mode == Vote::ballot)
      write_lanes<std::uint32_t>(warp.lanes<std::uint32_t>(in.op[0]), group, [=](int) { return set; });
    else if (Mode == Vote::all ? set == group : Mode == Vote::any ? set != 0 : set == 0 || set == group)
      result |= group;
  });
  if constexpr (Mode != Vote::ballot)
    warp.set_predicate(in.op[0], result);
}

bool bind_vote(Binder &b) {
  only(b, {"sync", "all", "any", "uni", "ballot"});
  expect_operands(b, b.has("sync") ? 3 : 2);
  const bool ballot = b.has("ballot");
  b.out.op[0] = ballot ? b.destination_slot(0, ptx::Type::b32) : b.destination_predicate(b.operand(0));
  const Binder::Predicate a = b.predicate(b.operand(1));
  b.out.op[1] = a.offset;
  b.out.flags = a.negated ? ~0u : 0;
  bind_members(b, 2);
  b.out.execute = ballot         ? vote<Vote::ballot>
                  : b.has("all") ? vote<Vote::all>
                  : b.has("any") ? vote<Vote::any>
                                 : vote<Vote::uni>;
  return true;
}

// --- match -------------------------------------------------------------------------------------------------

// op = d, p, a
template <class Word> void match_any(Warp &warp, const Instruction &in) {
  if (!members_are_here(warp, in))
    return;
  const Word *a = warp.lanes<Word>(in.op[2]);
  std::uint32_t result[32] = {};
  for_each_group(warp, in, [&](std::uint32_t group) {
    for (std::uint32_t left = group; left;) {
      const Word value = a[std::countr_zero(left)];
      const std::uint32_t same = group & lanes_where([=](int lane) { return a[lane] == value; });
      for_lanes(same, [&](int lane) { result[lane] = same; });
      left &= ~same;
    }
  });
  blend_lanes(warp.lanes<std::uint32_t>(in.op[0]), result, warp.active());
}

template <class Word> void match_all(Warp &warp, const Instruction &in) {
  if (!members_are_here(warp, in))
    return;
  const Word *a = warp.lanes<Word>(in.op[2]);
  std::uint32_t result[32] = {}, matched = 0;
  for_each_group(warp, in, [&](std::uint32_t group) {
    const Word value = a[std::countr_zero(group)];
    if ((group & lanes_where([=](int lane) { return a[lane] != value; })) != 0)
      return;
    matched |= group;
    for_lanes(group, [&](int lane) { result[lane] = group; });
  });
  blend_lanes(warp.lanes<std::uint32_t>(in.op[0]), result, warp.active());
  if (in.flags)
    warp.set_predicate(in.op[1], matched);
}

bool bind_match(Binder &b) {
  only(b, {"sync", "any", "all"});
  expect_operands(b, 3);
  const program::Operand &d = b.operand(0);
  const bool pair = d.kind == program::Operand::Kind::pair;
  if (pair && b.has("any"))
    b.unsupported("match.any has no predicate destination");
  b.out.op[0] = b.destination_slot(pair ? d.elements.at(0) : d, ptx::Type::b32);
  if (pair) {
    b.out.op[1] = b.destination_predicate(d.elements.at(1));
    b.out.flags = 1;
  }
  b.out.op[2] = b.source_slot(1, b.type());
  bind_members(b, 2);
  const bool wide = ptx::type_bytes(b.type()) == 8;
  if (b.has("any"))
    b.out.execute = wide ? match_any<std::uint64_t> : match_any<std::uint32_t>;
  else
    b.out.execute = wide ? match_all<std::uint64_t> : match_all<std::uint32_t>;
  return true;
}

// --- redux -------------------------------------------------------------------------------------------------

struct Min {
  template <class T> T operator()(T a, T b) const { return std::min(a, b); }
};
struct Max {
  template <class T> T operator()(T a, T b) const { return std::max(a, b); }
};

// op = d, a
template <class Op, class T> void redux(Warp &warp, const Instruction &in) {
  if (!members_are_here(warp, in))
    return;
  const auto *a = warp.lanes<std::uint32_t>(in.op[1]);
  auto *d = warp.lanes<std::uint32_t>(in.op[0]);
  for_each_group(warp, in, [=](std::uint32_t group) {
    // Lanes outside the group repeat the first lane's value, which does not affect min, max, and, or.
    constexpr bool kCounts = std::is_same_v<Op, std::plus<>> || std::is_same_v<Op, std::bit_xor<>>;
    const std::uint32_t first = a[std::countr_zero(group)];
    T result = kCounts ? T(0) : static_cast<T>(first);
    LADDER_LANES_ARE_INDEPENDENT
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint32_t value = a[lane];
      result = Op{}(result, static_cast<T>(group & kLaneBit[unsigned(lane)] ? value : kCounts ? 0 : first));
    }
    write_lanes<std::uint32_t>(d, group, [=](int) { return static_cast<std::uint32_t>(result); });
  });
}

constexpr std::uint32_t kGreatest = 1, kMagnitudes = 2, kPassesNaN = 4; // flags of redux.f32

/// -0 is below +0. NaNs count only with .NaN; if there is nothing else, the result is the canonical one.
void redux_float(Warp &warp, const Instruction &in) {
  if (!members_are_here(warp, in))
    return;
  const auto *a = warp.lanes<std::uint32_t>(in.op[1]);
  auto *d = warp.lanes<std::uint32_t>(in.op[0]);
  for_each_group(warp, in, [=](std::uint32_t group) {
    constexpr std::uint32_t kCanonicalNaN = 0x7fffffff, kInfinity = 0x7f800000, kSign = 0x80000000;
    // Bits in an order that is that of the numbers.
    const auto key = [](std::uint32_t bits) {
      return static_cast<std::int32_t>(bits & kSign ? ~(bits & ~kSign) : bits);
    };
    std::uint32_t result = kCanonicalNaN;
    bool is_nan = false;
    for_lanes(group, [&](int lane) {
      const std::uint32_t bits = in.flags & kMagnitudes ? a[lane] & ~kSign : a[lane];
      if ((bits & ~kSign) > kInfinity)
        is_nan = true;
      else if (result == kCanonicalNaN ||
               (in.flags & kGreatest ? key(bits) > key(result) : key(bits) < key(result)))
        result = bits;
    });
    if (is_nan && in.flags & kPassesNaN)
      result = kCanonicalNaN;
    write_lanes<std::uint32_t>(d, group, [=](int) { return result; });
  });
}

bool bind_redux_float(Binder &b) {
  needs_target(b, {"sm_100a", "sm_100f"});
  only(b, {"sync", "min", "max", "abs", "NaN"});
  b.out.op[0] = b.destination_slot(0, ptx::Type::f32);
  b.out.op[1] = b.source_slot(1, ptx::Type::f32);
  bind_members(b, 2);
  b.out.flags =
      (b.has("max") ? kGreatest : 0) | (b.has("abs") ? kMagnitudes : 0) | (b.has("NaN") ? kPassesNaN : 0);
  b.out.execute = redux_float;
  return true;
}

bool bind_redux(Binder &b) {
  expect_operands(b, 3);
  const ptx::Type type = b.type();
  if (type == ptx::Type::f32)
    return bind_redux_float(b);
  only(b, {"sync", "add", "min", "max", "and", "or", "xor"});
  since(b, 80);
  b.out.op[0] = b.destination_slot(0, type);
  b.out.op[1] = b.source_slot(1, type);
  bind_members(b, 2);
  const bool is_signed = type == ptx::Type::s32;
  if (b.has("add"))
    b.out.execute = redux<std::plus<>, std::uint32_t>;
  else if (b.has("min"))
    b.out.execute = is_signed ? redux<Min, std::int32_t> : redux<Min, std::uint32_t>;
  else if (b.has("max"))
    b.out.execute = is_signed ? redux<Max, std::int32_t> : redux<Max, std::uint32_t>;
  else
    b.out.execute = b.has("and")  ? redux<std::bit_and<>, std::uint32_t>
                    : b.has("or") ? redux<std::bit_or<>, std::uint32_t>
                                  : redux<std::bit_xor<>, std::uint32_t>;
  return true;
}

// --- activemask, elect -------------------------------------------------------------------------------------

void activemask(Warp &warp, const Instruction &in) {
  const std::uint32_t active = warp.active();
  write_lanes<std::uint32_t>(warp.lanes<std::uint32_t>(in.op[0]), active, [=](int) { return active; });
}

bool bind_activemask(Binder &b) {
  only(b, {});
  expect_operands(b, 1);
  b.out.op[0] = b.destination_slot(0, ptx::Type::b32);
  b.out.execute = activemask;
  return true;
}

// op = d, p
void elect(Warp &warp, const Instruction &in) {
  if (!members_are_here(warp, in))
    return;
  auto *d = warp.lanes<std::uint32_t>(in.op[0]);
  std::uint32_t leaders = 0;
  for_each_group(warp, in, [&](std::uint32_t group) {
    const auto leader = static_cast<std::uint32_t>(std::countr_zero(group));
    leaders |= kLaneBit[leader];
    for_lanes(group, [&](int lane) { d[lane] = leader; });
  });
  warp.set_predicate(in.op[1], leaders);
}

bool bind_elect(Binder &b) {
  only(b, {"sync"});
  since(b, 90);
  expect_operands(b, 2);
  const program::Operand &d = b.operand(0);
  if (d.kind != program::Operand::Kind::pair)
    b.unsupported("elect.sync needs two destinations");
  b.out.op[0] = b.destination_slot(d.elements.at(0), ptx::Type::b32);
  b.out.op[1] = b.destination_predicate(d.elements.at(1));
  bind_members(b, 1);
  b.out.execute = elect;
  return true;
}

constexpr TableEntry kTable[] = {
    {"shfl", bind_shfl},
    {"vote", bind_vote},
    {"match", bind_match},
    {"redux", bind_redux},
    {"activemask", bind_activemask},
    {"elect", bind_elect},
};

} // namespace

std::span<const TableEntry> warp_table() { return kTable; }

} // namespace ladder::instructions
