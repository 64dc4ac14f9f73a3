#include "sanitizer/clocks.h"

#include <algorithm>
#include <bit>

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

BlockClocks::BlockClocks(std::uint32_t threads, int barriers)
    : threads_(threads), epochs_(threads, 1), bases_(threads, std::make_shared<const Clock>(threads, 0)),
      rows_(threads), fences_(threads, 0), gathering_(std::size_t(barriers)),
      completed_(std::size_t(barriers)) {
  for (Row &row : rows_)
    row.fill(0);
}

void BlockClocks::meet(int warp, std::uint32_t lanes) {
  Row joined{};
  SharedClock base;
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    for (std::size_t i = 0; i < kLanes; ++i)
      joined[i] = std::max(joined[i], rows_[thread][i]);
    if (bases_[thread] != base)
      base = merge(base, bases_[thread]);
  });
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    joined[thread % kLanes] = epochs_[thread];
    end_epoch(thread);
  });
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    rows_[thread] = joined;
    bases_[thread] = base;
  });
}

void BlockClocks::give(int warp, std::uint32_t lanes, std::uint32_t members) {
  Meeting &meeting = meetings_[{warp, members}];
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    for (std::size_t i = 0; i < kLanes; ++i)
      meeting.row[i] = std::max(meeting.row[i], rows_[thread][i]);
    meeting.row[thread % kLanes] = epochs_[thread];
    meeting.base = merge(meeting.base, bases_[thread]);
    end_epoch(thread);
  });
}

void BlockClocks::take(int warp, std::uint32_t lanes, std::uint32_t members) {
  const Meeting &meeting = meetings_[{warp, members}];
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    for (std::size_t i = 0; i < kLanes; ++i)
      rows_[thread][i] = std::max(rows_[thread][i], meeting.row[i]);
    bases_[thread] = merge(bases_[thread], meeting.base);
  });
}

void BlockClocks::arrive(int barrier, int warp, std::uint32_t lanes) {
  Gathering &gathering = gathering_[std::size_t(barrier)];
  if (gathering.clock.empty())
    gathering.clock.assign(threads_, 0);
  Clock &clock = gathering.clock;
  const std::uint32_t first = std::uint32_t(warp) * kLanes, count = std::min(kLanes, threads_ - first);
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    const SharedClock &base = bases_[thread];
    if (std::find(gathering.merged.begin(), gathering.merged.end(), base) == gathering.merged.end()) {
      raise(clock, *base);
      gathering.merged.push_back(base);
    }
    for (std::uint32_t i = 0; i < count; ++i)
      clock[first + i] = std::max(clock[first + i], rows_[thread][i]);
    clock[thread] = epochs_[thread];
    end_epoch(thread);
  });
}

void BlockClocks::complete(int barrier) {
  Gathering &gathering = gathering_[std::size_t(barrier)];
  completed_[std::size_t(barrier)] = std::make_shared<const Clock>(std::move(gathering.clock));
  gathering = {};
}

void BlockClocks::leave(int barrier, int warp, std::uint32_t lanes) {
  // What a thread brought to the barrier is part of what it takes.
  for_threads(warp, lanes, [&](std::uint32_t thread) { bases_[thread] = completed_[std::size_t(barrier)]; });
}

void BlockClocks::fence(int warp, std::uint32_t lanes) {
  for_threads(warp, lanes, [&](std::uint32_t thread) {
    fences_[thread] = epochs_[thread];
    end_epoch(thread);
  });
}

SharedClock BlockClocks::fenced(std::uint32_t thread) const {
  const std::uint32_t epoch = fences_[thread];
  return epoch ? snapshot(thread, epoch) : nullptr;
}

SharedClock BlockClocks::release(std::uint32_t thread) {
  SharedClock clock = snapshot(thread, epochs_[thread]);
  end_epoch(thread);
  return clock;
}

SharedClock BlockClocks::snapshot(std::uint32_t thread, std::uint32_t own_epoch) const {
  Clock clock = *bases_[thread];
  const std::uint32_t first = thread / kLanes * kLanes;
  for (std::uint32_t i = 0; i < kLanes && first + i < threads_; ++i)
    clock[first + i] = std::max(clock[first + i], rows_[thread][i]);
  clock[thread] = own_epoch;
  return std::make_shared<const Clock>(std::move(clock));
}

void BlockClocks::acquire(std::uint32_t thread, const SharedClock &clock) {
  bases_[thread] = merge(bases_[thread], clock);
}

} // namespace ladder::sanitizer
