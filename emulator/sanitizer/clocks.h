// What has happened before what, among the threads of a block.
//
// Each thread counts epochs; one ends when the thread lets others know what it has done: at a barrier, at a
// fence. Thread t knows of thread u's accesses up to an epoch of u, which is kept in two parts: what came
// through the block (a clock that most threads share) and, for the lanes of t's own warp, what came through
// __syncwarp and its like (a row of 32).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace ladder::sanitizer {

/// By thread of a block: the last epoch that is known of.
using Clock = std::vector<std::uint32_t>;
using SharedClock = std::shared_ptr<const Clock>;

/// The larger of both in every place.
SharedClock merge(const SharedClock &a, const SharedClock &b);

class BlockClocks {
public:
  BlockClocks(std::uint32_t threads, int barriers);

  std::uint32_t epoch(std::uint32_t thread) const { return epochs_[thread]; }
  /// What a thread knows, until it learns more.
  class Known {
  public:
    /// Whether what `past` did in that epoch is known to have happened.
    bool operator()(std::uint32_t past, std::uint32_t epoch) const {
      return base_[past] >= epoch || (past / kLanes == warp_ && row_[past % kLanes] >= epoch);
    }

  private:
    friend BlockClocks;
    const std::uint32_t *base_, *row_;
    std::uint32_t warp_;
  };
  Known known_to(std::uint32_t thread) const {
    Known known;
    known.base_ = bases_[thread]->data();
    known.row_ = rows_[thread].data();
    known.warp_ = thread / kLanes;
    return known;
  }
  bool knows(std::uint32_t now, std::uint32_t past, std::uint32_t epoch) const {
    return known_to(now)(past, epoch);
  }

  /// Lanes of a warp wait for each other.
  void meet(int warp, std::uint32_t lanes);
  /// The same when they meet from different instructions: first each gives, then each takes.
  void give(int warp, std::uint32_t lanes, std::uint32_t members);
  void take(int warp, std::uint32_t lanes, std::uint32_t members);

  void arrive(int barrier, int warp, std::uint32_t lanes);
  void complete(int barrier);
  void leave(int barrier, int warp, std::uint32_t lanes);

  /// Fences of all scopes count alike: that one reaches too short is not found.
  void fence(int warp, std::uint32_t lanes);
  /// What an atomic of this thread makes known: all from before its last fence, nullptr when there was none.
  SharedClock fenced(std::uint32_t thread) const;
  /// All that the thread has done and knows; ends its epoch.
  SharedClock release(std::uint32_t thread);
  void acquire(std::uint32_t thread, const SharedClock &clock);

private:
  static constexpr std::uint32_t kLanes = 32;
  using Row = std::array<std::uint32_t, kLanes>;
  struct Gathering {
    Clock clock; ///< empty: nobody has come
    std::vector<SharedClock> merged;
  };
  struct Meeting {
    Row row{};
    SharedClock base;
  };

  SharedClock snapshot(std::uint32_t thread, std::uint32_t own_epoch) const;
  void end_epoch(std::uint32_t thread) { ++epochs_[thread]; }

  std::uint32_t threads_;
  std::vector<std::uint32_t> epochs_;
  std::vector<SharedClock> bases_;
  std::vector<Row> rows_;
  std::vector<std::uint32_t> fences_; ///< the epoch that the thread's last fence ended
  std::vector<Gathering> gathering_;
  std::vector<SharedClock> completed_;
  std::map<std::pair<int, std::uint32_t>, Meeting> meetings_; ///< by warp and members
};

} // namespace ladder::sanitizer
