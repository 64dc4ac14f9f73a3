// mbarriers: what arrivals publish, what waiters learn, and phases that no thread has observed.
#include "instructions/mbarrier.h"

#include "sanitizer/block_checker.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace ladder::sanitizer {

using instructions::for_lanes;
using machine::Instruction;
using machine::Warp;

/// An arrival at an mbarrier publishes everything its thread did.
void BlockChecker::mbarrier(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const Reach where = reach_operand(at, warp.active(), 8, true);
  touch(at, where, at.site.flags ? Act::update : Act::write, 8);
  for_lanes(where.elsewhere, [&](int lane) {
    if (const auto place = owner(where.address[lane], 8))
      check_init_by_cluster(at, lane, *place->first, place->second);
  });
  const program::Effect effect = warp.source(in).row->effect;
  const bool is_init = effect == program::Effect::mbarrier_init;
  if (is_init)
    check_inits(at, where);
  report(at, 8);
  if (effect == program::Effect::mbarrier_inval)
    for_lanes(where.shared, [&](int lane) {
      inits_.erase(where.address[lane]);
      arrivals_.erase(where.address[lane]);
      waits_.erase(where.address[lane]);
    });
  if (is_init) { // publishes nothing
    for_lanes(where.shared, [&](int lane) {
      inits_[where.address[lane]] = {access(at, lane, Act::write), false};
      inits_end_ = std::max(inits_end_, where.address[lane] + sizeof(std::uint64_t));
      unseen_completions_.erase(where.address[lane]);
      arrivals_.erase(where.address[lane]);
      waits_.erase(where.address[lane]);
    });
    return carry_out(at, where.lanes());
  }
  if (may_complete_several(at, where)) // each phase counts, not only the last
    for_lanes(where.lanes(), [&](int lane) { arrive(at, where.only(1u << lane)); });
  else
    arrive(at, where);
}

bool BlockChecker::may_complete_several(const Context &at, const Reach &where) {
  std::map<std::uint64_t, std::uint64_t> arrivals; // by mbarrier
  const std::uint32_t *const counts = at.warp.lanes<std::uint32_t>(at.in.op[2]);
  const bool counts_bytes = at.warp.source(at.in).is(program::Trait::expects_bytes);
  for_lanes(where.shared,
            [&](int lane) { arrivals[where.address[lane]] += counts_bytes ? 1 : counts[lane]; });
  return where.elsewhere || std::ranges::any_of(arrivals, [&](const auto &one) {
           std::uint64_t bits;
           std::memcpy(&bits, block_.shared_base() + one.first, sizeof bits);
           return one.second > instructions::Mbarrier::unpack(bits).expected;
         });
}

void BlockChecker::arrive(const Context &at, const Reach &where) {
  const Phases before = phases(where);
  check_arrivals(at, before);
  for_lanes(where.shared | where.elsewhere, [&](int lane) {
    const auto place = owner(where.address[lane], 8);
    if (!place)
      return;
    Knowledge &published = place->first->objects_[place->second].knowledge;
    published = merge(published, clocks_.release(at.thread(lane)));
    if (at.warp.source(at.in).is(program::Trait::expects_bytes))
      place->first->expectations_[place->second] = access(at, lane, Act::update);
  });
  carry_out(at, where.lanes());
  check_phases(at, before);
  check_waits(at, before);
}

/// An mbarrier must be invalidated before its memory is initialised again.
void BlockChecker::check_inits(const Context &at, const Reach &where) {
  for_lanes(where.shared, [&](int lane) {
    const std::uint64_t address = where.address[lane];
    if (const auto init = inits_.find(address); init != inits_.end() && phase_of(address))
      note({Kind::barrier, lane, address, Where::shared, init->second.access, true, true});
  });
}

void BlockChecker::mbarrier_wait(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const Reach where = reach_operand(at, warp.active(), 8, true);
  touch(at, where, Act::update, 8);
  if (in.flags & instructions::kWaitsByParity)
    for_lanes(warp.active(), [&](int lane) {
      if (warp.lanes<std::uint32_t>(in.op[2])[lane] > 1)
        note(Kind::parity, lane, where.address[lane], Where::shared);
    });
  report(at, 8);
  const Phases before = phases(where);
  carry_out(at, where.lanes());
  for (const auto &[place, phase] : before)
    if (place.first == this)
      complete_bulk_copies(at, place.second, phase.parity);
  const std::uint32_t over = where.shared & warp.predicate(in.op[1]);
  for (const auto &[place, phase] : before)
    if (place.first == this) {
      std::uint32_t seeing = 0;
      for_lanes(over, [&, address = place.second](int lane) {
        seeing |= std::uint32_t(where.address[lane] == address) << lane;
      });
      observe_commits(at, seeing, place.second, phase.parity);
    }
  const std::uint32_t count = over ? clocks_.see_phase(warp.index()) : 0;
  for_lanes(over, [&](int lane) {
    const std::uint64_t address = where.address[lane];
    note_wait(at, lane, address, count);
    if (const auto found = objects_.find(address); found != objects_.end())
      clocks_.acquire(at.thread(lane), found->second.knowledge, true);
    if (const auto found = landed_.find(address); found != landed_.end())
      for (const SharedRead &source : found->second)
        source->waits.push_back(wait_of(warp, 1u << lane));
    unseen_completions_.erase(address);
  });
  report(at, 8);
}

/// A thread has seen the end of the phase before the incomplete one. If nothing keeps that one from
/// completing, the thread could have missed this end.
void BlockChecker::note_wait(const Context &at, int lane, std::uint64_t mbarrier, std::uint32_t count) {
  const auto parity = phase_of(mbarrier);
  if (!parity)
    return;
  Waits &waits = waits_[mbarrier];
  if (waits.parity != *parity)
    waits = {*parity, {}};
  const bool is_first =
      waits.by_warp.insert_or_assign(at.warp.index(), Waits::Seen{access(at, lane, Act::update), count})
          .second;
  const auto arrivals = arrivals_.find(mbarrier);
  if (is_first && may_complete(mbarrier, *parity) && arrivals != arrivals_.end() &&
      arrivals->second.parity == *parity && !arrivals->second.current.empty())
    note({Kind::barrier, lane, mbarrier, Where::shared, arrivals->second.current.back(), true, false});
}

/// Data stored over an mbarrier destroys it; mbarrier.inval must come first.
void BlockChecker::check_overwritten_inits(const Context &at, int lane, std::uint64_t address, unsigned bytes,
                                           BlockChecker &owner) {
  for (auto init = owner.inits_.begin(); init != owner.inits_.end();) {
    const std::uint64_t mbarrier = init->first;
    const bool is_over = mbarrier < address + bytes && address < mbarrier + sizeof(std::uint64_t);
    if (is_over && owner.phase_of(mbarrier))
      note({Kind::barrier, lane, mbarrier, Where::shared, init->second.access, true, true});
    init = is_over ? owner.inits_.erase(init) : std::next(init);
  }
}

/// The parity of the incomplete phase; nullopt if there is no mbarrier.
std::optional<std::uint32_t> BlockChecker::phase_of(std::uint64_t mbarrier) const {
  std::uint64_t bits;
  std::memcpy(&bits, block_.shared_base() + mbarrier, sizeof bits);
  if (!instructions::Mbarrier::is_valid(bits))
    return std::nullopt;
  return instructions::Mbarrier::unpack(bits).phase;
}

BlockChecker::Phases BlockChecker::phases(const Reach &where) {
  Phases found;
  for_lanes(where.shared | where.elsewhere, [&](int lane) {
    if (const auto place = owner(where.address[lane], 8))
      if (const auto phase = place->first->phase_of(place->second))
        found.try_emplace(*place, Phase{lane, *phase});
  });
  return found;
}

/// A thread that arrives must know the arrivals in the previous phase: in another order of threads it would
/// arrive before one of them, and count for that phase.
void BlockChecker::check_arrivals(const Context &at, const Phases &phases) {
  for (const auto &[place, phase] : phases) {
    const auto [checker, address] = place;
    Arrivals &arrivals = checker->arrivals_[address];
    if (arrivals.parity != phase.parity)
      arrivals = {phase.parity, {}, std::move(arrivals.current)};
    // Not captured by name: clang 14, emscripten's, does not take a structured binding there.
    const auto unknown = std::ranges::find_if(arrivals.previous, [&, lane = phase.lane](const Access &past) {
      return !knows(at.thread(lane), past);
    });
    if (unknown != arrivals.previous.end())
      note({Kind::barrier, phase.lane, address, Where::shared, *unknown, true, false});
    arrivals.current.push_back(access(at, phase.lane, Act::update));
  }
  report(at, 8);
}

/// Whether the phase of this parity has completed, or needs only copies that are in flight.
bool BlockChecker::may_complete(std::uint64_t mbarrier, std::uint32_t parity) const {
  std::uint64_t bits;
  std::memcpy(&bits, block_.shared_base() + mbarrier, sizeof bits);
  const instructions::Mbarrier barrier = instructions::Mbarrier::unpack(bits);
  std::int64_t in_flight = 0;
  for (const machine::BulkCopyInFlight &copy : block_.bulk_copies())
    if (copy.mbarrier == mbarrier)
      in_flight += std::int64_t(copy.data.size());
  return barrier.phase != parity || (barrier.pending == 0 && barrier.bytes <= in_flight);
}

/// A phase completes after its arrivals and copies. One of them must know of each warp that has seen the end
/// of the previous phase: in another order of threads this one could complete before that, and the warp would
/// wait for the next but one.
void BlockChecker::check_waits(const Context &at, const Phases &before) {
  for (const auto &[place, phase] : before) {
    BlockChecker *const checker = place.first;
    const std::uint64_t address = place.second;
    const auto waits = checker->waits_.find(address);
    if (waits == checker->waits_.end() || waits->second.parity != phase.parity ||
        !checker->phase_of(address) || !checker->may_complete(address, phase.parity))
      continue;
    for (const auto &by_warp : waits->second.by_warp) {
      const int warp = by_warp.first;
      const Waits::Seen &seen = by_warp.second;
      const auto is_known_to = [&](const Knowledge &knowledge) {
        return checker->clocks_.are_phases_known(knowledge, warp, seen.count);
      };
      if (!is_known_to(checker->objects_[address].knowledge) &&
          std::ranges::none_of(checker->bulk_copies_[address], is_known_to, &CopyInFlight::issuer))
        note({Kind::barrier, phase.lane, address, Where::shared, seen.wait, false, false});
    }
  }
  report(at, 8);
}

/// A wait by parity cannot tell a phase from the second one after it, so some thread must observe each phase
/// before the next one completes.
void BlockChecker::check_phases(const Context &at, const Phases &before) {
  for (const auto &[place, phase] : before) {
    const auto [checker, address] = place;
    const auto parity = checker->phase_of(address);
    if (!parity || *parity == phase.parity) // invalidated, or still incomplete
      continue;
    const Access now = access(at, phase.lane, Act::update);
    const auto [earlier, is_first] = checker->unseen_completions_.try_emplace(address, now);
    if (is_first)
      continue;
    note({Kind::barrier, phase.lane, address, Where::shared, earlier->second, true, true});
    earlier->second = now;
  }
  report(at, 8);
}

/// A thread must know of another block's initialisation before it uses the mbarrier. The shadow cell cannot
/// show this, since it holds the last use.
void BlockChecker::check_init_by_cluster(const Context &at, int lane, BlockChecker &owner,
                                         std::uint64_t mbarrier) {
  const auto init = owner.inits_.find(mbarrier);
  if (&owner != this && init != owner.inits_.end() &&
      !knows_block(at.thread(lane), init->second.access, true))
    note({Kind::race_blocks, lane, mbarrier, Where::shared, init->second.access, true, true});
}

/// Fences, and barriers of the cluster, make a thread's initialised mbarriers visible to the async proxy.
void BlockChecker::publish_inits(const Warp &warp, std::uint32_t lanes) {
  for (auto &[mbarrier, init] : inits_) {
    const std::uint32_t thread = init.access.thread;
    init.is_published |= int(thread / 32) == warp.index() && lanes >> thread % 32 & 1;
  }
}

} // namespace ladder::sanitizer
