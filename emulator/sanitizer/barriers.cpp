// Block and warp barriers, and member masks of warp-wide instructions.
#include "sanitizer/block_checker.h"

#include "instructions/shuffle.h"

#include <algorithm>
#include <bit>

namespace ladder::sanitizer {

using instructions::for_lanes;
using machine::Instruction;
using machine::Warp;

void BlockChecker::report_barrier(const Context &at, std::string message, std::uint32_t other) {
  launch_.findings().add(
      {Kind::barrier, &launch_.code(), at.index, other}, std::uint64_t(std::popcount(at.warp.active())), [&] {
        Finding finding;
        finding.kind = Kind::barrier;
        finding.kernel = launch_.kernel();
        finding.message = std::move(message);
        const machine::Dim3 block = block_.index();
        finding.who = launch_.party({block.x, block.y, block.z}, at.warp.index(), at.warp.active(), at.index);
        if (other != kNoInstruction)
          finding.other = launch_.party({block.x, block.y, block.z}, -1, 0, other);
        return finding;
      });
}

void BlockChecker::check_arrival(const Context &at, std::uint32_t barrier) {
  Warp &warp = at.warp;
  if (!at.site.is(program::Trait::aligned))
    return;
  // The barrier does not wait for lanes that have returned or are about to. Spinning lanes may reach it
  // later: the other lanes of their warp continue without them.
  if (const std::uint32_t wanted = warp.live() & ~warp.about_to_exit();
      wanted & ~warp.active() && !has_spun_[std::size_t(warp.index())])
    report_barrier(at,
                   "only " + machine::lanes_text(warp.active()) + " of the warp's " +
                       machine::lanes_text(wanted) +
                       " reach the barrier: either all lanes of a warp execute it, or none",
                   kNoInstruction);
  // Barriers with a count serve parts of a block, which may arrive from different instructions.
  if (warp.lanes<std::uint32_t>(at.in.op[1])[std::countr_zero(warp.active())] != 0)
    return;
  std::int64_t &first = first_arrival_[barrier];
  if (first < 0)
    first = at.index;
  const machine::Code &code = launch_.code();
  if (first != at.index &&
      machine::source_place(code, std::size_t(first)) != machine::source_place(code, at.index))
    report_barrier(at, "threads of the block wait for each other at two different barriers",
                   std::uint32_t(first));
}

void BlockChecker::barrier(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const std::uint32_t active = warp.active();
  const std::uint32_t id = warp.lanes<std::uint32_t>(in.op[0])[std::countr_zero(active)];
  if (id >= std::uint32_t(machine::kBarriers))
    return carry_out(at, active); // the original handler rejects it
  if (!at.site.is(program::Trait::arrives) && warp.released()) {
    clocks_.leave(int(id), warp.index(), active);
    return carry_out(at, active);
  }
  check_arrival(at, id);
  clocks_.arrive(int(id), warp.index(), active);
  carry_out(at, active);
}

/// Synchronises lanes that name the same members.
void BlockChecker::meet(const Context &at) {
  Warp &warp = at.warp;
  std::uint32_t left = warp.active();
  const std::uint32_t *const masks = warp.lanes<std::uint32_t>(at.in.op[0]);
  while (left) {
    const std::uint32_t members = masks[std::countr_zero(left)];
    std::uint32_t group = 0;
    for_lanes(left, [&](int lane) { group |= std::uint32_t(masks[lane] == members) << lane; });
    left &= ~group;
    if (warp.released())
      clocks_.take(warp.index(), group, members);
    else if ((members & warp.live() & ~warp.path_mask()) == 0)
      clocks_.meet(warp.index(), group);
    else
      clocks_.give(warp.index(), group, members);
  }
}

void BlockChecker::warp_barrier(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  meet(at);
  carry_out(at, warp.active());
}

/// A lane provides no value if the mask omits it or if it does not arrive. In a reduction or scan, the last
/// lanes read outside the mask, but their results are unused.
void BlockChecker::check_sources(const Context &at) {
  using instructions::Shuffle;
  Warp &warp = at.warp;
  const Shuffle mode = instructions::shuffle_mode(at.in);
  const auto *b = warp.lanes<std::uint32_t>(at.in.op[3]), *c = warp.lanes<std::uint32_t>(at.in.op[4]);
  std::uint32_t members = 0;
  for_lanes(warp.active(), [&](int lane) { members |= instructions::members_of(warp, at.in, lane); });
  if (members & warp.live() & ~warp.path_mask() && !warp.released())
    return; // it waits for its members; the check repeats once they have arrived
  const std::uint32_t absent = ~warp.live() | (warp.path_mask() & ~warp.active());
  for_lanes(warp.active(), [&](int lane) {
    const std::uint32_t from = instructions::source_lane(mode, lane, b[lane], c[lane]);
    const bool may_leave_mask = mode == Shuffle::down || mode == Shuffle::up;
    const std::uint32_t named = instructions::members_of(warp, at.in, lane);
    // Only the first lane's result of a reduction matters, and only the last lane's result of a scan.
    const int wanted = mode == Shuffle::up ? 31 - std::countl_zero(named) : std::countr_zero(named);
    const std::uint32_t nothing = may_leave_mask && lane != wanted ? named & absent : ~named | absent;
    if (from < 32 && from != std::uint32_t(lane) && nothing >> from & 1)
      note(Kind::mask, lane, from, Where::none);
  });
  report(at, 4);
}

void BlockChecker::members_skipped(Warp &warp, std::uint32_t instruction, std::uint32_t lanes,
                                   std::uint32_t missing) {
  launch_.findings().add(
      {Kind::mask, &launch_.code(), instruction, kNoInstruction}, std::uint64_t(std::popcount(lanes)), [&] {
        Finding finding;
        finding.kind = Kind::mask;
        finding.kernel = launch_.kernel();
        finding.message =
            "names " + machine::lanes_text(missing) +
            " in its member mask, which skip it and continue: every lane in the mask must execute it";
        const machine::Dim3 block = block_.index();
        finding.who = launch_.party({block.x, block.y, block.z}, warp.index(), lanes, instruction);
        return finding;
      });
}

/// Reports lanes that execute an instruction whose mask omits them.
void BlockChecker::check_own_mask(const Context &at) {
  for_lanes(at.warp.active(), [&](int lane) {
    if (!(instructions::members_of(at.warp, at.in, lane) >> lane & 1))
      note(Kind::mask, lane, std::uint64_t(lane), Where::none);
  });
}

void BlockChecker::vote(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  check_own_mask(at);
  report(at, 4);
  carry_out(at, warp.active());
}

/// Shuffles and votes synchronise lanes, but do not order memory according to the programming guide.
void BlockChecker::shuffle(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  check_own_mask(at);
  check_sources(at);
  carry_out(at, warp.active());
}

} // namespace ladder::sanitizer
