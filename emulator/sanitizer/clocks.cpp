#include "sanitizer/clocks.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ladder::sanitizer {

namespace {

void raise(Clock &clock, const Clock &other) {
  for (std::size_t i = 0; i < clock.size(); ++i)
    clock[i] = std::max(clock[i], other[i]);
}

template <typename F> void for_threads(int warp, std::uint32_t lanes, F f) {
  for (; lanes; lanes &= lanes - 1)
    f(std::uint32_t(warp) * 32 + std::uint32_t(std::countr_zero(lanes)));
}

} // namespace

SharedClock merge(const SharedClock &a, const SharedClock &b) {
  if (!a || a == b)
    return b;
  if (!b)
    return a;
  Clock merged = *a;
  raise(merged, *b);
  if (merged == *a)
    return a;
  if (merged == *b)
    return b;
  return std::make_shared<const Clock>(std::move(merged));
}

bool is_in(const Knowledge &all, std::uint32_t block, std::uint32_t past, std::uint32_t epoch) {
  if (!all)
    return false;
  const auto found = all->find(block);
  return found != all->end() && (*found->second)[past] >= epoch;
}

Knowledge merge(const Knowledge &a, const Knowledge &b) {
  if (!a || a == b)
    return b;
  if (!b)
    return a;
  std::vector<std::pair<std::uint32_t, SharedClock>> news; // what b adds to a
  std::size_t shared = 0;
  bool b_is_newest = true;
  for (const auto &[block, clock] : *b) {
    const auto known = a->find(block);
    const SharedClock merged = known == a->end() ? clock : merge(known->second, clock);
    shared += known != a->end();
    b_is_newest = b_is_newest && merged == clock;
    if (known == a->end() || merged != known->second)
      news.emplace_back(block, merged);
  }
  if (news.empty())
    return a;
  if (b_is_newest && shared == a->size())
    return b;
  std::map<std::uint32_t, SharedClock> all = *a;
  for (auto &[block, clock] : news)
    all[block] = std::move(clock);
  return std::make_shared<const std::map<std::uint32_t, SharedClock>>(std::move(all));
}

BlockClocks::BlockClocks(std::uint32_t block, std::uint32_t threads, int barriers)
    : block_(block), threads_(threads), epochs_(threads, 1), seen_phases_((threads + kLanes - 1) / kLanes),
      bases_(threads, std::make_shared<const Clock>(threads + seen_phases_.size(), 0)), rows_(threads),
      others_(threads), unfenced_(threads), has_met_((threads + kLanes - 1) / kLanes), fences_(threads, 0),
      gathering_(std::size_t(barriers)), completed_(std::size_t(barriers)) {
  for (Row &row : rows_)
    row.fill(0);
}

bool BlockClocks::is_in_step(int warp) const {
  const std::size_t first = std::size_t(warp) * kLanes;
  std::uint32_t differs = 0;
  for (std::size_t i = 1; i < kLanes; ++i)
    differs |= (epochs_[first + i] ^ epochs_[first]) | (bases_[first + i] != bases_[first]);
  return !differs;
}

bool BlockClocks::agree(std::uint32_t now, std::uint32_t past, std::uint32_t epoch,
                        std::uint32_t count) const {
  const std::uint32_t *const base = bases_[now]->data() + past;
  std::uint32_t known = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    known += base[i] >= epoch;
  // What lanes know of their own warp may differ.
  return known == count || (known == 0 && past / kLanes != now / kLanes);
}

void BlockClocks::meet(int warp, std::uint32_t lanes) {
  has_met_[std::size_t(warp)] = true;
  Row joined{};
  SharedClock base;
  Knowledge others;
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    for (std::size_t i = 0; i < kLanes; ++i)
      joined[i] = std::max(joined[i], rows_[thread][i]);
    if (bases_[thread] != base)
      base = merge(base, bases_[thread]);
    if (others_[thread] != others)
      others = merge(others, others_[thread]);
  });
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    joined[thread % kLanes] = epochs_[thread];
    end_epoch(thread);
  });
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    rows_[thread] = joined;
    bases_[thread] = base;
    others_[thread] = others;
  });
}

void BlockClocks::give(int warp, std::uint32_t lanes, std::uint32_t members) {
  Meeting &meeting = meetings_[{warp, members}];
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    for (std::size_t i = 0; i < kLanes; ++i)
      meeting.row[i] = std::max(meeting.row[i], rows_[thread][i]);
    meeting.row[thread % kLanes] = epochs_[thread];
    meeting.base = merge(meeting.base, bases_[thread]);
    meeting.others = merge(meeting.others, others_[thread]);
    end_epoch(thread);
  });
}

void BlockClocks::take(int warp, std::uint32_t lanes, std::uint32_t members) {
  has_met_[std::size_t(warp)] = true;
  const Meeting &meeting = meetings_[{warp, members}];
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    for (std::size_t i = 0; i < kLanes; ++i)
      rows_[thread][i] = std::max(rows_[thread][i], meeting.row[i]);
    bases_[thread] = merge(bases_[thread], meeting.base);
    others_[thread] = merge(others_[thread], meeting.others);
  });
}

void BlockClocks::arrive(int barrier, int warp, std::uint32_t lanes) {
  Gathering &gathering = gathering_[std::size_t(barrier)];
  if (gathering.clock.empty())
    gathering.clock.assign(threads_ + seen_phases_.size(), 0);
  Clock &clock = gathering.clock;
  clock[place_of_warp(std::uint32_t(warp))] = seen_phases_[std::size_t(warp)];
  const std::uint32_t first = std::uint32_t(warp) * kLanes, count = std::min(kLanes, threads_ - first);
  const bool has_met = has_met_[std::size_t(warp)];
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    finish_acquiring(thread);
    gathering.others = merge(gathering.others, others_[thread]);
    const SharedClock &base = bases_[thread];
    std::vector<SharedClock> &merged = gathering.merged;
    if (merged.empty() ||
        (base != merged.back() && std::find(merged.begin(), merged.end(), base) == merged.end())) {
      raise(clock, *base);
      merged.push_back(base);
    }
    for (std::uint32_t i = 0; has_met && i < count; ++i)
      clock[first + i] = std::max(clock[first + i], rows_[thread][i]);
    clock[thread] = epochs_[thread];
    end_epoch(thread);
  });
}

void BlockClocks::complete(int barrier) {
  Gathering &gathering = gathering_[std::size_t(barrier)];
  completed_[std::size_t(barrier)] = {std::make_shared<const Clock>(std::move(gathering.clock)),
                                      std::move(gathering.others)};
  gathering = {};
}

void BlockClocks::leave(int barrier, int warp, std::uint32_t lanes) {
  // What a thread takes from the barrier includes what it gave.
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    bases_[thread] = completed_[std::size_t(barrier)].clock;
    others_[thread] = completed_[std::size_t(barrier)].others;
  });
}

void BlockClocks::finish_acquiring(std::uint32_t thread) {
  if (const Knowledge unfenced = std::exchange(unfenced_[thread], nullptr))
    others_[thread] = merge(others_[thread], unfenced);
}

void BlockClocks::fence(int warp, std::uint32_t lanes) {
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    finish_acquiring(thread);
    fences_[thread] = epochs_[thread];
    end_epoch(thread);
  });
}

Knowledge BlockClocks::fenced(std::uint32_t thread) const {
  const std::uint32_t epoch = fences_[thread];
  return epoch ? snapshot(thread, epoch) : nullptr;
}

Knowledge BlockClocks::release(std::uint32_t thread) {
  Knowledge knowledge = snapshot(thread, epochs_[thread]);
  end_epoch(thread);
  return knowledge;
}

Knowledge BlockClocks::snapshot(std::uint32_t thread, std::uint32_t own_epoch) const {
  Clock clock = *bases_[thread];
  const std::uint32_t first = thread / kLanes * kLanes;
  for (std::uint32_t i = 0; i < kLanes && first + i < threads_; ++i)
    clock[first + i] = std::max(clock[first + i], rows_[thread][i]);
  clock[thread] = own_epoch;
  clock[place_of_warp(thread / kLanes)] = seen_phases_[thread / kLanes];
  std::map<std::uint32_t, SharedClock> all;
  if (others_[thread])
    all = *others_[thread];
  all[block_] = std::make_shared<const Clock>(std::move(clock));
  return std::make_shared<const std::map<std::uint32_t, SharedClock>>(std::move(all));
}

bool BlockClocks::acquire(std::uint32_t thread, const Knowledge &knowledge, bool is_fenced) {
  if (!knowledge)
    return false;
  if (const auto own = knowledge->find(block_); own != knowledge->end())
    bases_[thread] = merge(bases_[thread], own->second);
  if (knowledge->size() == knowledge->count(block_))
    return false; // of this block alone
  Knowledge &known = (is_fenced ? others_ : unfenced_)[thread];
  const Knowledge before = std::exchange(known, merge(known, knowledge));
  return known != before;
}

bool BlockClocks::knows_other(std::uint32_t thread, std::uint32_t block, std::uint32_t past,
                              std::uint32_t epoch, bool with_unfenced) const {
  return is_in(others_[thread], block, past, epoch) ||
         (with_unfenced && is_in(unfenced_[thread], block, past, epoch));
}

void BlockClocks::learn_phases(int warp, int other, std::uint32_t count) {
  const std::size_t place = place_of_warp(std::uint32_t(other));
  SharedClock before, after; // lanes mostly share one clock
  for (std::uint32_t thread = std::uint32_t(warp) * kLanes;
       thread < std::min(threads_, std::uint32_t(warp + 1) * kLanes); ++thread) {
    if ((*bases_[thread])[place] >= count)
      continue;
    if (bases_[thread] != before) {
      before = bases_[thread];
      Clock raised = *before;
      raised[place] = count;
      after = std::make_shared<const Clock>(std::move(raised));
    }
    bases_[thread] = after;
  }
}

bool BlockClocks::are_phases_known(const Knowledge &knowledge, int warp, std::uint32_t count) const {
  return is_in(knowledge, block_, std::uint32_t(place_of_warp(std::uint32_t(warp))), count);
}

bool BlockClocks::any_knows_other(std::uint32_t block, std::uint32_t past, std::uint32_t epoch) const {
  for (std::uint32_t thread = 0; thread < threads_; ++thread)
    if (knows_other(thread, block, past, epoch, true))
      return true;
  return false;
}

} // namespace ladder::sanitizer
