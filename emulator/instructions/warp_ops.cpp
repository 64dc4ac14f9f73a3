// Instructions between the lanes of a warp: shfl, vote, match, redux, activemask, elect.
//
// The .sync forms name their members. Lanes of one path may name different sets (tiles of a warp), each of
// which is served apart; a path that lacks lanes of a set waits for them first.
#include "instructions/elementwise.h"
#include "machine/fault.h"

#include <algorithm>
#include <bit>

namespace ladder::instructions {

namespace {

using machine::FaultError;
using machine::FaultKind;

// --- members -----------------------------------------------------------------------------------------------

/// Where an instruction with members keeps the register that names them. kNoMembers: not a .sync form.
constexpr int kMembers = 5;
constexpr std::uint32_t kNoMembers = 0xffffffffu;

bool same_for_all(const std::uint32_t *lanes, std::uint32_t active) {
  const std::uint32_t first = lanes[std::countr_zero(active)];
  return (lanes_where([=](int lane) { return lanes[lane] != first; }) & active) == 0;
}

/// False when the path must wait for members, and the handler must return at once.
bool members_are_here(Warp &warp, const Instruction &in) {
  if (in.op[kMembers] == kNoMembers)
    return true;
  const auto *masks = warp.lanes<std::uint32_t>(in.op[kMembers]);
  const std::uint32_t active = warp.active();
  const std::uint32_t outside =
      active & lanes_where([=](int lane) { return (masks[lane] & kLaneBit[unsigned(lane)]) == 0; });
  if (outside)
    throw FaultError(FaultKind::bad_operand, "the thread is not in the member mask of the instruction",
                     std::countr_zero(outside));
  std::uint32_t members = 0;
  for_each_lane(active, [&](int lane) { members |= masks[lane]; });
  if (!warp.converge(members))
    return false;
  if (members & warp.live() & ~warp.path_mask())
    throw FaultError(FaultKind::unsupported,
                     "the lanes of the member mask meet from different instructions, which is not modelled",
                     std::countr_zero(active));
  return true;
}

/// Calls f(lanes) for each set of active lanes that work together.
template <class F> void for_each_group(Warp &warp, const Instruction &in, F f) {
  std::uint32_t left = warp.active();
  if (in.op[kMembers] == kNoMembers)
    return f(left);
  const auto *masks = warp.lanes<std::uint32_t>(in.op[kMembers]);
  if (same_for_all(masks, left))
    return f(left);
  while (left) {
    const std::uint32_t members = masks[std::countr_zero(left)];
    const std::uint32_t group =
        left & members & lanes_where([=](int lane) { return masks[lane] == members; });
    f(group);
    left &= ~group;
  }
}

void bind_members(Binder &b, std::size_t operand) {
  if (!b.has("sync")) {
    b.out.op[kMembers] = kNoMembers;
    return;
  }
  b.out.op[kMembers] = b.source_slot(operand, ptx::Type::b32);
}

// --- shfl --------------------------------------------------------------------------------------------------

enum class Shuffle { up, down, bfly, idx };

// op = d, p, a, b, c, members; flags: 1 when p is wanted.
template <Shuffle Mode> void shfl(Warp &warp, const Instruction &in) {
  if (!members_are_here(warp, in))
    return;
  const auto *a = warp.lanes<std::uint32_t>(in.op[2]);
  const auto *offsets = warp.lanes<std::uint32_t>(in.op[3]);
  const auto *clamps = warp.lanes<std::uint32_t>(in.op[4]);
  std::uint32_t value[32], source[32];
  std::copy_n(a, 32, value); // the destination may be the source
  LADDER_LANES_ARE_INDEPENDENT
  for (int lane = 0; lane < 32; ++lane) {
    const int b = static_cast<int>(offsets[lane] & 31);
    const int segment = static_cast<int>(clamps[lane] >> 8 & 31), clamp = static_cast<int>(clamps[lane] & 31);
    const int first = lane & segment, last = first | (clamp & ~segment);
    int j;
    bool in_range;
    if constexpr (Mode == Shuffle::up) {
      j = lane - b;
      in_range = j >= last;
    } else {
      j = Mode == Shuffle::down ? lane + b : Mode == Shuffle::bfly ? lane ^ b : first | (b & ~segment);
      in_range = j <= last;
    }
    source[lane] = static_cast<std::uint32_t>(in_range ? j : lane | 32); // 32: out of range
  }
  write_lanes<std::uint32_t>(warp.lanes<std::uint32_t>(in.op[0]), warp.active(),
                             [&](int lane) { return value[source[lane] & 31]; });
  if (in.flags)
    warp.set_predicate(in.op[1], lanes_where([&](int lane) { return source[lane] < 32; }));
}

bool bind_shfl(Binder &b) {
  only(b, {"sync", "up", "down", "bfly", "idx"});
  expect_operands(b, b.has("sync") ? 5 : 4);
  const program::Operand &d = b.operand(0);
  const bool pair = d.kind == program::Operand::Kind::pair;
  b.out.op[0] = b.destination_slot(pair ? d.elements.at(0) : d, ptx::Type::b32);
  if (pair) {
    b.out.op[1] = b.destination_predicate(d.elements.at(1));
    b.out.flags = 1;
  }
  for (std::size_t i = 1; i <= 3; ++i)
    b.out.op[i + 1] = b.source_slot(i, ptx::Type::b32);
  bind_members(b, 4);
  b.out.execute = b.has("up")     ? shfl<Shuffle::up>
                  : b.has("down") ? shfl<Shuffle::down>
                  : b.has("bfly") ? shfl<Shuffle::bfly>
                                  : shfl<Shuffle::idx>;
  return true;
}

// --- vote --------------------------------------------------------------------------------------------------

enum class Vote { all, any, uni, ballot };

// op = d, a; flags: the inversion of a.
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
      for_each_lane(same, [&](int lane) { result[lane] = same; });
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
    for_each_lane(group, [&](int lane) { result[lane] = group; });
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

struct Sum {
  template <class T> T operator()(T a, T b) const { return a + b; }
};
struct Min {
  template <class T> T operator()(T a, T b) const { return std::min(a, b); }
};
struct Max {
  template <class T> T operator()(T a, T b) const { return std::max(a, b); }
};
struct And {
  template <class T> T operator()(T a, T b) const { return a & b; }
};
struct Or {
  template <class T> T operator()(T a, T b) const { return a | b; }
};
struct Xor {
  template <class T> T operator()(T a, T b) const { return a ^ b; }
};

// op = d, a
template <class Op, class T> void redux(Warp &warp, const Instruction &in) {
  if (!members_are_here(warp, in))
    return;
  const auto *a = warp.lanes<std::uint32_t>(in.op[1]);
  auto *d = warp.lanes<std::uint32_t>(in.op[0]);
  for_each_group(warp, in, [&](std::uint32_t group) {
    auto result = static_cast<T>(a[std::countr_zero(group)]);
    for_each_lane(group & (group - 1), [&](int lane) { result = Op{}(result, static_cast<T>(a[lane])); });
    for_each_lane(group, [&](int lane) { d[lane] = static_cast<std::uint32_t>(result); });
  });
}

bool bind_redux(Binder &b) {
  only(b, {"sync", "add", "min", "max", "and", "or", "xor"});
  since(b, 80);
  expect_operands(b, 3);
  const ptx::Type type = b.type();
  if (type == ptx::Type::f32)
    b.unsupported("needs sm_100a");
  b.out.op[0] = b.destination_slot(0, type);
  b.out.op[1] = b.source_slot(1, type);
  bind_members(b, 2);
  const bool is_signed = type == ptx::Type::s32;
  if (b.has("add"))
    b.out.execute = redux<Sum, std::uint32_t>;
  else if (b.has("min"))
    b.out.execute = is_signed ? redux<Min, std::int32_t> : redux<Min, std::uint32_t>;
  else if (b.has("max"))
    b.out.execute = is_signed ? redux<Max, std::int32_t> : redux<Max, std::uint32_t>;
  else
    b.out.execute = b.has("and")  ? redux<And, std::uint32_t>
                    : b.has("or") ? redux<Or, std::uint32_t>
                                  : redux<Xor, std::uint32_t>;
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
    for_each_lane(group, [&](int lane) { d[lane] = leader; });
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
