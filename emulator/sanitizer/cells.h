// The record of an access in a cell of shadow memory. Inlined into the loops over lanes and cells.
#pragma once

#include "sanitizer/block_checker.h"

namespace ladder::sanitizer {

[[gnu::always_inline]] inline void BlockChecker::remember_read(Cell &cell, const Touch &touch) const {
  const Access &now = touch.now;
  const auto is_past = [&](const Access &read) {
    return read.epoch == 0 ||
           (read.block == now.block && (read.thread == now.thread || touch.known(read.thread, read.epoch)));
  };
  auto &[first, second] = cell.reads;
  if (is_past(first)) {
    first = now;
    return;
  }
  // A race of two warps or blocks takes precedence over one of two lanes of a warp.
  const auto is_near = [&](const Access &read) {
    return read.block == now.block && read.thread / 32 == now.thread / 32;
  };
  if (is_near(first) && !is_near(second) && !is_past(second))
    return;
  second = now;
}

inline void BlockChecker::remember_write(Cell &cell, const Touch &touch) const {
  const Access &now = touch.now;
  // Prefer a write that changed something to one that did not, as long as it can still race.
  if (now.flags & Access::silent && cell.write.epoch && !(cell.write.flags & Access::silent) &&
      (cell.write.flags & Access::in_flight || races(cell.write, now, false, true)))
    return;
  // An atomic does not make an earlier plain write by the same thread atomic.
  const bool stays_weak = cell.write.thread == now.thread && cell.write.epoch == now.epoch &&
                          cell.write.block == now.block && !(cell.write.flags & Access::strong);
  cell.write = now;
  if (stays_weak)
    cell.write.flags &= std::uint8_t(~Access::strong);
}

/// True if an access to the whole cell has no conflict, since all previous accesses by others are known to
/// have happened before it. Most accesses are like this and skip `conflict`.
[[gnu::always_inline]] inline bool BlockChecker::is_settled(const Touch &touch, const Cell &cell) const {
  const auto is_past = [&](const Access &past) {
    if (past.epoch == 0)
      return true;
    if (past.block != block_index_)
      return false;
    return past.thread == touch.now.thread ? !(touch.now.flags & Access::collective)
                                           : touch.known(past.thread, past.epoch);
  };
  if (!is_past(cell.write) || cell.write.flags & Access::in_flight)
    return false;
  if (touch.deed.reads())
    return !(touch.deed.at.site.is(program::Trait::read_only_path) && cell.write.epoch);
  return is_past(cell.reads[0]) && is_past(cell.reads[1]);
}

} // namespace ladder::sanitizer
