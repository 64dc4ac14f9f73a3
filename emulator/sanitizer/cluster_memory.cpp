// Distributed shared memory: accesses to the shared memory of other blocks of the cluster, and their order.
#include "machine/cluster.h"

#include "sanitizer/block_checker.h"

namespace ladder::sanitizer {

using instructions::for_lanes;
using machine::Instruction;
using machine::Warp;

std::optional<std::pair<BlockChecker *, std::uint64_t>> BlockChecker::owner(std::uint64_t address,
                                                                            unsigned bytes) {
  const std::uint64_t rank = address >> machine::kClusterRankShift;
  machine::Cluster &cluster = block_.cluster();
  if (rank >= cluster.size())
    return std::nullopt;
  machine::Block &block = cluster.block(std::uint32_t(rank));
  if (block.finished() || address < block.shared_first() || address + bytes > block.shared_end())
    return std::nullopt;
  return std::pair{static_cast<BlockChecker *>(block.observer()), address};
}

BlockChecker &BlockChecker::checker(std::uint32_t block) {
  machine::Cluster &cluster = block_.cluster();
  for (std::uint32_t rank = 0; block != block_index_ && rank < cluster.size(); ++rank)
    if (cluster.block(rank).linear_index() == block)
      return static_cast<BlockChecker &>(*cluster.block(rank).observer());
  return *this;
}

void BlockChecker::touch_cluster(const Context &at, const Reach &reach, Act act, unsigned begin,
                                 unsigned bytes) {
  const Deed remote = deed(at, reach.elsewhere, act, Where::shared);
  for_lanes(reach.elsewhere, [&](int lane) {
    if (const auto place = owner(reach.address[lane] + begin, bytes))
      touch_shared(remote, lane, place->second, bytes, *place->first);
  });
}

/// After the wait, a thread knows what the threads of the cluster did before they arrived; with
/// arrive.relaxed, what they did before their last fence. A thread's arrivals number the phases, since all
/// threads take part in each phase.
void BlockChecker::cluster_arrive(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const bool is_relaxed = warp.source(in).is(program::Trait::relaxed);
  for_lanes(warp.active(), [&](int lane) {
    const std::uint32_t thread = at.thread(lane), phase = cluster_arrivals_[thread]++;
    Knowledge &published = launch_.cluster_barriers[{&block_.cluster(), phase}];
    published = merge(published, is_relaxed ? clocks_.fenced(thread) : clocks_.release(thread));
  });
  if (!is_relaxed)
    publish_inits(warp, warp.active());
  carry_out(at, warp.active());
}

void BlockChecker::cluster_wait(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const std::uint32_t active = warp.active();
  carry_out(at, active);
  for_lanes(active, [&](int lane) {
    if (const std::uint32_t arrivals = cluster_arrivals_[at.thread(lane)])
      clocks_.acquire(at.thread(lane), launch_.cluster_barriers[{&block_.cluster(), arrivals - 1}], true);
  });
}

/// A block may exit only after it knows that the other blocks have finished with its shared memory.
void BlockChecker::check_use_by_cluster() {
  const auto check = [&](const Access &access) {
    if (access.epoch && access.block != block_index_ && !(access.flags & Access::in_flight) &&
        !clocks_.any_knows_other(access.block, access.thread, access.epoch))
      report_past(
          Kind::race_blocks, access, {},
          "accesses shared memory of another block of the cluster that may have exited: that block does "
          "not wait for this access");
  };
  shadow_.for_cells([&](std::uint64_t, std::uint64_t, const Cell &cell) {
    check(cell.write);
    check(cell.reads[0]);
    check(cell.reads[1]);
  });
}

} // namespace ladder::sanitizer
