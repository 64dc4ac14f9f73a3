// What the sanitizer keeps of tensor memory: the last accesses to each cell, and what is known of their end.
#pragma once

#include "sanitizer/async_proxy.h"
#include "sanitizer/clocks.h"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ladder::sanitizer {

/// An asynchronous access to tensor memory.
struct TensorAccess {
  Access by; ///< its thread; of a load or store, the warp's first
  int warp = 0;
  /// Of a product or copy: the threads that have observed a commit behind it. nullptr for loads and stores.
  SharedRead work;
  /// Warps of the block that have observed such a commit, and when.
  std::vector<std::pair<int, std::uint64_t>> observed;
  // Of a load or store:
  bool is_waited_for = false;
  /// By lane: its epoch when it executed fence::before_thread_sync after the wait; 0: it has not.
  std::array<std::uint32_t, 32> published{};
};
using SharedAccess = std::shared_ptr<TensorAccess>;

struct TensorShadow {
  static constexpr std::uint32_t kColumns = 512, kBands = 8; ///< a band is 16 lanes

  /// 16 lanes of a column: loads and stores access no fewer.
  struct Cell {
    SharedAccess write;
    std::vector<SharedAccess> reads; ///< since that write
  };
  struct WarpAccesses {
    std::vector<SharedAccess> loads, stores;   ///< not waited for
    std::vector<SharedAccess> unpublished;     ///< waited for; no fence::before_thread_sync since
    std::optional<BlockClocks::Moment> fenced; ///< the last fence::after_thread_sync
    std::uint64_t fence_time = 0;
  };
  struct Commit {
    std::vector<SharedAccess> work;
    std::optional<std::uint32_t> arrived; ///< the parity of the phase
  };

  explicit TensorShadow(std::size_t warp_count) : cells(kColumns * kBands), warps(warp_count) {}

  Cell &cell(std::uint32_t column, std::uint32_t band) { return cells[column * kBands + band]; }

  std::vector<Cell> cells;
  std::vector<WarpAccesses> warps;
  std::map<std::uint32_t, std::vector<SharedAccess>> work; ///< by thread: that no thread has observed
  std::map<std::uint64_t, std::deque<Commit>> commits;     ///< by mbarrier of this block, in order
  std::map<std::uint32_t, Access> allocations;             ///< by first column
  std::uint64_t time = 0;
};

} // namespace ladder::sanitizer
