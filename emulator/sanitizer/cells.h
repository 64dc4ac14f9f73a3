// The record of an access in a cell of shadow memory. Inlined into the loops over lanes and cells.
#pragma once

#include "sanitizer/block_checker.h"

#include <utility>

namespace ladder::sanitizer {

/// Returns a read that the cell no longer holds, but that later writes must be ordered after; epoch 0: none.
[[gnu::always_inline]] inline Access BlockChecker::remember_read(Cell &cell, const Touch &touch) const {
  const Access &now = touch.now;
  const auto is_past = [&](const Access &read) {
    return read.epoch == 0 ||
           (read.block == now.block && (read.thread == now.thread || touch.known(read.thread, read.epoch)));
  };
  auto &[first, second] = cell.reads;
  if (is_past(first)) {
    first = now;
    return {};
  }
  // A race of two warps or blocks takes precedence over one of two lanes of a warp.
  const auto are_near = [](const Access &a, const Access &b) {
    return a.block == b.block && a.thread / 32 == b.thread / 32;
  };
  const bool still_counts = !is_past(second) && !are_near(second, now);
  if (still_counts && are_near(first, now))
    return {};
  const Access displaced = std::exchange(second, now);
  return still_counts && !are_near(displaced, first) ? displaced : Access{};
}

inline void BlockChecker::remember_write(Cell &cell, const Touch &touch) const {
  const Access &now = touch.now;
  // Prefer a write that changed something to one that did not, as long as it can still race.
  if (now.flags & Access::silent && cell.write.epoch && !(cell.write.flags & Access::silent) &&
      (cell.write.flags & Access::in_flight || races(cell.write, now, false, true)))
    return;
  // An atomic does not make an earlier plain write by the same thread atomic: that write stays, since it is
  // what others race with.
  const bool stays_weak = cell.write.thread == now.thread && cell.write.epoch == now.epoch &&
                          cell.write.block == now.block && now.flags & Access::strong &&
                          !(cell.write.flags & Access::strong) && !(now.bytes & ~cell.write.bytes);
  if (stays_weak)
    cell.write.flags &= std::uint8_t(~Access::silent); // the atomic has changed the value
  else
    cell.write = now;
}

/// True if an access to the whole cell has no conflict, since all previous accesses by others are known to
/// have happened before it. Most accesses are like this and skip `conflict`.
[[gnu::always_inline]] inline bool BlockChecker::is_settled(const Touch &touch, const Cell &cell) const {
  const auto is_past = [&](const Access &past) {
    if (past.epoch == 0)
      return true;
    if (past.block != block_index_)
      return false;
    if (past.thread == touch.now.thread && !(touch.now.flags & Access::collective) &&
        !(past.flags & Access::collective && touch.now.flags & Access::in_flight))
      return true;
    return touch.known(past.thread, past.epoch);
  };
  if (!is_past(cell.write) || cell.write.flags & Access::in_flight)
    return false;
  if (touch.deed.reads())
    return !(touch.deed.at.site.is(program::Trait::read_only_path) && cell.write.epoch);
  return is_past(cell.reads[0]) && is_past(cell.reads[1]);
}

} // namespace ladder::sanitizer
