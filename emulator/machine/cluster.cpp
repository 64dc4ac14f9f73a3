#include "machine/cluster.h"

#include "machine/fault.h"

#include <bit>
#include <string>

namespace ladder::machine {

Cluster::Cluster(LaunchContext &launch, std::uint64_t index, Counters &counters, bool on_launching_thread) {
  const Dim3 &grid = launch.grid, &shape = launch.cluster;
  const Dim3 clusters{grid.x / shape.x, grid.y / shape.y, grid.z / shape.z};
  const Dim3 place{std::uint32_t(index % clusters.x), std::uint32_t(index / clusters.x % clusters.y),
                   std::uint32_t(index / clusters.x / clusters.y)};
  for (std::uint32_t z = 0; z < shape.z; ++z)
    for (std::uint32_t y = 0; y < shape.y; ++y)
      for (std::uint32_t x = 0; x < shape.x; ++x) {
        const Dim3 block{place.x * shape.x + x, place.y * shape.y + y, place.z * shape.z + z};
        blocks_.push_back(std::make_unique<Block>(launch, block, counters, on_launching_thread, *this,
                                                  std::uint32_t(blocks_.size())));
      }
  live_threads_ = std::uint32_t(launch.block.count() * blocks_.size());
  marks_.assign(blocks_.size(), std::vector<std::uint32_t>((launch.block.count() + 31) / 32 * 32));
}

Block::State Cluster::run() {
  for (;;) {
    bool all_done = true, moved = false, spins = false, interrupted = false, gave_way = false;
    Block *waiting = nullptr;
    for (const auto &block : blocks_) {
      if (block->finished())
        continue;
      const Block::State state = block->run();
      moved = moved || block->take_moved();
      if (state == Block::State::finished)
        continue;
      all_done = false;
      spins = spins || state == Block::State::spinning;
      interrupted = interrupted || state == Block::State::interrupted;
      gave_way = gave_way || state == Block::State::gave_way;
      if (state == Block::State::waiting)
        waiting = block.get();
    }
    if (all_done)
      return Block::State::finished;
    if (interrupted)
      return Block::State::interrupted;
    if (gave_way)
      return Block::State::gave_way;
    if (moved)
      continue;
    bool starves = true;
    for (const auto &block : blocks_)
      starves = starves && (block->finished() || block->starves());
    if (starves)
      for (const auto &block : blocks_)
        if (!block->finished())
          block->deadlock();
    if (spins)
      return Block::State::spinning;
    waiting->deadlock();
  }
}

std::uint32_t &Cluster::mark(const Warp &warp, int lane) {
  return marks_[const_cast<Warp &>(warp).block().cluster_rank()][std::size_t(warp.index() * 32 + lane)];
}

void Cluster::arrive(Warp &warp) {
  for (std::uint32_t lanes = warp.active(); lanes; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    std::uint32_t &own = mark(warp, lane);
    if (own)
      throw FaultError(FaultKind::barrier,
                       "barrier.cluster.arrive by a thread that has already arrived and has not waited since",
                       lane);
    own = phase_;
    ++arrived_;
  }
  complete_if_all_arrived();
}

bool Cluster::wait(Warp &warp) {
  for (std::uint32_t lanes = warp.active(); lanes; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    const std::uint32_t own = mark(warp, lane);
    if (own == 0)
      throw FaultError(FaultKind::barrier, "barrier.cluster.wait by a thread that has not arrived", lane);
    if (own == phase_)
      return false;
  }
  for (std::uint32_t lanes = warp.active(); lanes; lanes &= lanes - 1)
    mark(warp, std::countr_zero(lanes)) = 0;
  return true;
}

/// A thread that exits has arrived at all future barriers.
void Cluster::lanes_exited(const Warp &warp, std::uint32_t lanes) {
  for (; lanes; lanes &= lanes - 1) {
    if (mark(warp, std::countr_zero(lanes)) == phase_)
      ++leaving_;
    else
      --live_threads_;
  }
  complete_if_all_arrived();
}

void Cluster::complete_if_all_arrived() {
  if (arrived_ == 0 || arrived_ < live_threads_)
    return;
  ++phase_;
  live_threads_ -= leaving_;
  arrived_ = leaving_ = 0;
  for (const auto &block : blocks_) {
    block->note_progress();
    for (Warp &warp : block->warps())
      warp.release_waits();
  }
}

} // namespace ladder::machine
