// A cluster: blocks that run at the same time and reach each other's shared memory. A launch without clusters
// has clusters of one block.
//
// A shared::cluster address holds the rank of its block plus one above bit 24; what is below 2^24 is the
// block's own.
#pragma once

#include "machine/block.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace ladder::machine {

inline constexpr int kClusterRankShift = 24;
inline constexpr std::uint32_t kMostBlocksOfCluster = 16;

constexpr std::uint32_t cluster_address(std::uint32_t rank, std::uint32_t offset) {
  return (rank + 1) << kClusterRankShift | offset;
}

class Cluster {
public:
  /// `index` counts clusters as blocks are counted, x first. `on_launching_thread`: calls launch.on_round.
  Cluster(LaunchContext &launch, std::uint64_t index, Counters &counters, bool on_launching_thread);

  /// Runs its blocks in turn until they have all exited, or until all of them only poll.
  Block::State run();

  std::uint32_t size() const { return std::uint32_t(blocks_.size()); }
  Block &block(std::uint32_t rank) { return *blocks_[rank]; }

  /// barrier.cluster.arrive by the warp's active lanes. Throws when one of them has arrived already.
  void arrive(Warp &warp);
  /// barrier.cluster.wait: false when the warp must wait. Throws for lanes that have not arrived.
  bool wait(Warp &warp);
  void lanes_exited(const Warp &warp, std::uint32_t lanes);
  std::uint32_t missing_arrivals() const { return live_threads_ - arrived_; }

private:
  std::uint32_t &mark(const Warp &warp, int lane);
  void complete_if_all_arrived();

  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::vector<std::uint32_t>>
      marks_;               ///< [rank][thread]: the phase arrived at; 0: none to wait for
  std::uint32_t phase_ = 1; ///< the incomplete one
  std::uint32_t arrived_ = 0, live_threads_ = 0, leaving_ = 0; ///< leaving: arrived and exited since
};

} // namespace ladder::machine
