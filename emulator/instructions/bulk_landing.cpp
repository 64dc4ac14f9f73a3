// Data of bulk copies in flight to the shared memory of the cluster.
#include "instructions/bulk_copy.h"
#include "instructions/mbarrier.h"
#include "instructions/tcgen05.h"

#include "machine/block.h"

#include <algorithm>
#include <cstring>

namespace ladder::instructions {

using machine::Block;
using machine::BulkCopyInFlight;
using machine::FaultError;
using machine::FaultKind;
using machine::Warp;

namespace {

/// The copy lands when a thread looks at its mbarrier, so the mbarrier's block has it.
void send(Block &home, Block &signalled, int lane, std::uint64_t destination, std::uint64_t mbarrier,
          BulkCopyInFlight copy) {
  copy.place.address = std::uint32_t(destination);
  copy.mbarrier = std::uint32_t(mbarrier);
  home.shared(destination, copy.place.extent(std::uint32_t(copy.data.size())), lane);
  load_mbarrier(signalled.shared(mbarrier, sizeof(std::uint64_t), lane), mbarrier, lane);
  signalled.bulk_copies().push_back(std::move(copy));
}

} // namespace

void send_to_cluster(Warp &warp, int lane, std::uint64_t destination, std::uint64_t mbarrier,
                     BulkCopyInFlight copy) {
  Block &home = warp.block().owner(destination, lane), &signalled = warp.block().owner(mbarrier, lane);
  if (&home != &signalled)
    throw FaultError(FaultKind::bad_operand,
                     "data for one block of the cluster and the mbarrier of another one", lane)
        .at(mbarrier);
  send(home, signalled, lane, destination, mbarrier, std::move(copy));
}

void send_to_pair(Warp &warp, int lane, std::uint64_t destination, std::uint64_t mbarrier,
                  BulkCopyInFlight copy) {
  Block &home = warp.block().owner(destination, lane), &signalled = warp.block().owner(mbarrier, lane);
  if (home.cluster_rank() / 2 != signalled.cluster_rank() / 2)
    throw FaultError(FaultKind::bad_operand, "data for one pair of blocks and the mbarrier of another one",
                     lane)
        .at(mbarrier);
  send(home, signalled, lane, destination, mbarrier, std::move(copy));
}

void land_bulk_copies(Block &block, std::uint32_t address) {
  std::vector<BulkCopyInFlight> &copies = block.bulk_copies();
  for (std::size_t i = 0; i < copies.size();) {
    BulkCopyInFlight &copy = copies[i];
    if (copy.mbarrier != address) {
      ++i;
      continue;
    }
    if (copy.late_source)
      std::memcpy(copy.data.data(), copy.late_source, copy.data.size());
    std::uint8_t *const memory = block.owner(copy.place.address, 0).shared_base();
    constexpr std::size_t kChunk = 16;
    for (std::size_t at = 0; at < copy.data.size(); at += kChunk) {
      const std::size_t bytes = std::min(kChunk, copy.data.size() - at);
      std::uint8_t *const to = memory + copy.place.of(std::uint32_t(at));
      if (copy.combine)
        copy.combine(to, copy.data.data() + at, bytes);
      else
        std::memcpy(to, copy.data.data() + at, bytes);
    }
    std::uint8_t *const host = block.shared(address, sizeof(std::uint64_t), 0);
    Mbarrier barrier = load_mbarrier(host, address, 0);
    const std::uint32_t phase = barrier.phase;
    expect_bytes(barrier, -std::int64_t(copy.data.size()), 0);
    settle(block, barrier);
    const std::uint64_t bits = barrier.pack();
    std::memcpy(host, &bits, sizeof bits);
    copies.erase(copies.begin() + std::ptrdiff_t(i));
    if (barrier.phase != phase)
      return; // the remaining copies, whose bytes this phase did not expect, land in the next
  }
}

} // namespace ladder::instructions
