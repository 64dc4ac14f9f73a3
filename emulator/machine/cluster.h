// A cluster: blocks that run concurrently and can access each other's shared memory. A launch without
// clusters has clusters of one block.
//
// A shared address holds the block's rank above bit 24; the low 24 bits are the offset in that block. This is
// so on hardware: programs change the rank of their own addresses.
#pragma once

#include "machine/block.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace ladder::machine {

inline constexpr std::uint32_t kMostBlocksOfCluster = 16;

constexpr std::uint32_t cluster_address(std::uint32_t rank, std::uint32_t offset) {
  return rank << kClusterRankShift | offset;
}

class Cluster {
public:
  /// `index` numbers clusters like blocks, x first. `on_launching_thread`: calls launch.on_round.
  Cluster(LaunchContext &launch, std::uint64_t index, Counters &counters, bool on_launching_thread);

  /// Runs the blocks in turn until all have exited, all only poll, or they are interrupted.
  Block::State run();

  std::uint32_t size() const { return std::uint32_t(blocks_.size()); }
  Block &block(std::uint32_t rank) { return *blocks_[rank]; }

  /// barrier.cluster.arrive by the warp's active lanes. Throws if one has already arrived.
  void arrive(Warp &warp);
  /// barrier.cluster.wait: returns false if the warp must wait. Throws for lanes that have not arrived.
  bool wait(Warp &warp);
  void lanes_exited(const Warp &warp, std::uint32_t lanes);
  std::uint32_t missing_arrivals() const { return live_threads_ - arrived_; }

private:
  std::uint32_t &mark(const Warp &warp, int lane);
  void complete_if_all_arrived();

  std::vector<std::unique_ptr<Block>> blocks_;
  /// [rank][thread]: the phase arrived at; 0: none to wait for.
  std::vector<std::vector<std::uint32_t>> marks_;
  std::uint32_t phase_ = 1;                                    ///< the incomplete phase
  std::uint32_t arrived_ = 0, live_threads_ = 0, leaving_ = 0; ///< leaving: arrived, then exited
};

} // namespace ladder::machine
