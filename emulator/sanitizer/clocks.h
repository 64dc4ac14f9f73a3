// Happens-before order among the threads of a block.
//
// Each thread counts epochs; an epoch ends when the thread publishes its accesses, at a barrier or fence.
// Thread t knows thread u's accesses up to some epoch of u. That is kept in three parts: what t learned
// through the block (a clock that most threads share), through __syncwarp and similar from the lanes of its
// own warp (a row of 32), and about the threads of other blocks (shared by the threads that met at a
// barrier).
//
// Each warp also counts the phases of mbarriers whose end it has seen. A clock has these counts behind the
// threads' epochs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace ladder::sanitizer {

/// By thread of a block: the last known epoch. By warp, behind them: the last known of the phases it has
/// seen.
using Clock = std::vector<std::uint32_t>;
using SharedClock = std::shared_ptr<const Clock>;

/// The element-wise maximum; returns `a` or `b` itself if it is the maximum.
SharedClock merge(const SharedClock &a, const SharedClock &b);

/// By block: what is known about its threads. nullptr: nothing.
using Knowledge = std::shared_ptr<const std::map<std::uint32_t, SharedClock>>;
/// The union; returns `a` or `b` itself if it is the union.
Knowledge merge(const Knowledge &a, const Knowledge &b);

/// Whether it contains what a thread of a block did in that epoch.
bool is_in(const Knowledge &all, std::uint32_t block, std::uint32_t past, std::uint32_t epoch);

class BlockClocks {
public:
  BlockClocks(std::uint32_t block, std::uint32_t threads, int barriers);

  std::uint32_t epoch(std::uint32_t thread) const { return epochs_[thread]; }
  /// A view of what a thread knows; valid until it learns more.
  class Known {
  public:
    /// True if the thread knows the accesses of `past` in that epoch.
    bool operator()(std::uint32_t past, std::uint32_t epoch) const {
      return through_block(past, epoch) || (past / kLanes == warp_ && row_[past % kLanes] >= epoch);
    }
    /// The same, ignoring what it learned from the lanes of its warp.
    bool through_block(std::uint32_t past, std::uint32_t epoch) const { return base_[past] >= epoch; }

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
  /// What a thread knew of others at one time.
  struct Moment {
    std::uint32_t thread, epoch;
    SharedClock through_block;
    std::array<std::uint32_t, 32> through_warp;
    bool knows(std::uint32_t past, std::uint32_t past_epoch) const {
      return (*through_block)[past] >= past_epoch ||
             (past / kLanes == thread / kLanes && through_warp[past % kLanes] >= past_epoch);
    }
  };
  /// What a thread knows about other blocks.
  const Knowledge &others(std::uint32_t thread) const { return others_[thread]; }
  Moment now(std::uint32_t thread) const { return {thread, epochs_[thread], bases_[thread], rows_[thread]}; }

  /// True if all lanes of a warp, which must have 32, are in one epoch and have learned the same through the
  /// block.
  bool is_in_step(int warp) const;
  /// For `count` threads from `now` on and the corresponding threads from `past` on: true if either all of
  /// them know what their counterpart did in that epoch, or none does.
  bool agree(std::uint32_t now, std::uint32_t past, std::uint32_t epoch, std::uint32_t count) const;

  /// Lanes of a warp synchronise.
  void meet(int warp, std::uint32_t lanes);
  /// The same for lanes at different instructions: first each lane gives, then each takes.
  void give(int warp, std::uint32_t lanes, std::uint32_t members);
  void take(int warp, std::uint32_t lanes, std::uint32_t members);

  void arrive(int barrier, int warp, std::uint32_t lanes);
  void complete(int barrier);
  void leave(int barrier, int warp, std::uint32_t lanes);

  /// Fences of all scopes count alike, so a fence with too narrow a scope goes unnoticed.
  void fence(int warp, std::uint32_t lanes);
  /// What an atomic of this thread publishes: everything before its last fence; nullptr if there was none.
  Knowledge fenced(std::uint32_t thread) const;
  /// Everything the thread has done and knows; ends its epoch.
  Knowledge release(std::uint32_t thread);
  /// If `is_fenced`, reads of other blocks' data are ordered, too. Otherwise, until the thread's next fence,
  /// only writes and loads that bypass the L1 are. Returns true if the thread learned something about another
  /// block.
  bool acquire(std::uint32_t thread, const Knowledge &knowledge, bool is_fenced);
  /// Whether the thread knows what a thread of another block did in that epoch.
  bool knows_other(std::uint32_t thread, std::uint32_t block, std::uint32_t past, std::uint32_t epoch,
                   bool with_unfenced) const;
  /// A warp has seen the end of an mbarrier's phase: returns how many it has now seen.
  std::uint32_t see_phase(int warp) { return ++seen_phases_[std::size_t(warp)]; }
  std::uint32_t seen_phases(int warp) const { return seen_phases_[std::size_t(warp)]; }
  /// The threads of a warp learn that another has seen so many.
  void learn_phases(int warp, int other, std::uint32_t count);
  /// Whether the knowledge contains that a warp of this block has seen so many.
  bool are_phases_known(const Knowledge &knowledge, int warp, std::uint32_t count) const;
  /// Whether any thread does.
  bool any_knows_other(std::uint32_t block, std::uint32_t past, std::uint32_t epoch) const;

private:
  static constexpr std::uint32_t kLanes = 32;
  using Row = std::array<std::uint32_t, kLanes>;
  struct Gathering {
    Clock clock; ///< empty: no arrival yet
    std::vector<SharedClock> merged;
    Knowledge others;
  };
  struct Meeting {
    Row row{};
    SharedClock base;
    Knowledge others;
  };
  struct Completion {
    SharedClock clock;
    Knowledge others;
  };

  std::size_t place_of_warp(std::uint32_t warp) const { return threads_ + warp; }
  Knowledge snapshot(std::uint32_t thread, std::uint32_t own_epoch) const;
  void end_epoch(std::uint32_t thread) { ++epochs_[thread]; }
  void finish_acquiring(std::uint32_t thread);

  std::uint32_t block_, threads_;
  std::vector<std::uint32_t> epochs_;
  std::vector<std::uint32_t> seen_phases_; ///< by warp
  std::vector<SharedClock> bases_;
  std::vector<Row> rows_;
  std::vector<Knowledge> others_, unfenced_; ///< by thread; unfenced: until its fence
  std::vector<bool> has_met_;                ///< by warp: whether its rows hold anything
  std::vector<std::uint32_t> fences_;        ///< by thread: the epoch that its last fence ended
  std::vector<Gathering> gathering_;
  std::vector<Completion> completed_;
  std::map<std::pair<int, std::uint32_t>, Meeting> meetings_; ///< by warp and members
};

} // namespace ladder::sanitizer
