#include "instructions/bulk_copy.h"

#include "instructions/addressing.h"
#include "instructions/elementwise.h"
#include "instructions/mbarrier.h"

#include <cstring>
#include <string>

namespace ladder::instructions {

using machine::FaultError;
using machine::FaultKind;
using machine::Instruction;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

constexpr std::uint64_t kGranularity = 16; // of addresses and sizes
constexpr std::size_t kOperands = 3;       // addresses: destination, source, mbarrier
constexpr int kBaseBits = 3;
constexpr std::uint32_t kLoad = 1u << (kBaseBits * kOperands);

std::uint64_t operand_address(Warp &warp, const Instruction &in, std::size_t i, std::uint32_t slot,
                              int lane) {
  const std::uint32_t *const more = warp.more(in);
  const auto offset = std::int64_t(more[2 * i] | std::uint64_t(more[2 * i + 1]) << 32);
  std::uint64_t addresses[32];
  lane_addresses(warp, Binder::Address::Base(in.flags >> (kBaseBits * i) & 7), slot, offset, addresses);
  return addresses[lane];
}

void check(const BulkCopy &copy, int lane) {
  if (copy.bytes % kGranularity)
    throw FaultError(FaultKind::bad_operand,
                     "a bulk copy of " + std::to_string(copy.bytes) + " bytes, which is no multiple of 16",
                     lane);
  for (const std::uint64_t address : {copy.to, copy.from})
    if (address % kGranularity)
      throw FaultError(FaultKind::misaligned, "a bulk copy at an address that is no multiple of 16", lane)
          .at(address);
}

/// Nobody has measured what the hardware counts for these, so only that they ran is counted.
void bulk_copy(Warp &warp, const Instruction &in) {
  machine::AccessCounters &counters = warp.access(in, machine::AccessKind::async_copy);
  ++counters.executed;
  ++counters.unmodelled;
  machine::Block &block = warp.block();
  for_lanes(warp.active(), [&](int lane) {
    const BulkCopy copy = bulk_copy_of(warp, in, lane);
    check(copy, lane);
    if (copy.bytes == 0)
      return;
    if (!is_bulk_load(in)) {
      warp.global_range(copy.to, copy.bytes, true, lane);
      std::memcpy(reinterpret_cast<void *>(copy.to), block.shared(copy.from, copy.bytes, lane), copy.bytes);
      return;
    }
    warp.global_range(copy.from, copy.bytes, false, lane);
    block.shared(copy.to, copy.bytes, lane);
    load_mbarrier(block.shared(copy.mbarrier, sizeof(std::uint64_t), lane), copy.mbarrier, lane);
    const auto *const data = reinterpret_cast<const std::uint8_t *>(copy.from);
    block.bulk_copies().push_back(
        {std::uint32_t(copy.to), std::uint32_t(copy.mbarrier), {data, data + copy.bytes}});
  });
}

/// Copies to global memory are done at once, so that there is nothing to wait for.
void nothing(Warp &, const Instruction &) {}

} // namespace

bool is_bulk_load(const Instruction &in) { return in.flags & kLoad; }

BulkCopy bulk_copy_of(Warp &warp, const Instruction &in, int lane) {
  BulkCopy copy;
  copy.to = operand_address(warp, in, 0, in.op[0], lane);
  copy.from = operand_address(warp, in, 1, in.op[1], lane);
  copy.bytes = warp.lanes<std::uint32_t>(in.op[2])[lane];
  if (is_bulk_load(in))
    copy.mbarrier = operand_address(warp, in, 2, in.op[3], lane);
  return copy;
}

void land_bulk_copies(Warp &warp, std::uint32_t address) {
  machine::Block &block = warp.block();
  std::vector<machine::BulkCopyInFlight> &copies = block.bulk_copies();
  for (std::size_t i = 0; i < copies.size();) {
    const machine::BulkCopyInFlight &copy = copies[i];
    if (copy.mbarrier != address) {
      ++i;
      continue;
    }
    std::memcpy(block.shared(copy.shared_address, copy.data.size(), 0), copy.data.data(), copy.data.size());
    std::uint8_t *const host = block.shared(address, sizeof(std::uint64_t), 0);
    Mbarrier barrier = load_mbarrier(host, address, 0);
    expect_bytes(barrier, -std::int64_t(copy.data.size()), 0);
    settle(warp, barrier);
    const std::uint64_t bits = barrier.pack();
    std::memcpy(host, &bits, sizeof bits);
    copies.erase(copies.begin() + std::ptrdiff_t(i));
  }
}

bool bind_bulk_copy(Binder &binder) {
  since(binder, 90);
  for (const std::string_view word : {"tensor", "prefetch", "reduce", "multicast::cluster", "cp_mask"})
    if (binder.has(word))
      binder.unsupported("." + std::string(word));
  if (binder.has("commit_group") || binder.has("wait_group")) {
    binder.out.execute = nothing;
    return true;
  }
  const bool loads = binder.has("mbarrier::complete_tx::bytes");
  if (!binder.has("global") || (!loads && !binder.has("bulk_group")))
    binder.unsupported("a bulk copy between blocks of a cluster");
  std::vector<std::uint32_t> offsets;
  std::uint32_t *const slots[kOperands] = {&binder.out.op[0], &binder.out.op[1], &binder.out.op[3]};
  constexpr std::size_t kPlaces[kOperands] = {0, 1, 3};
  binder.out.flags = loads ? kLoad : 0;
  for (std::size_t i = 0; i < (loads ? kOperands : kOperands - 1); ++i) {
    const Binder::Address place = binder.address(binder.operand(kPlaces[i]));
    *slots[i] = place.slot;
    binder.out.flags |= std::uint32_t(place.base) << (kBaseBits * i);
    offsets.push_back(std::uint32_t(place.offset));
    offsets.push_back(std::uint32_t(std::uint64_t(place.offset) >> 32));
  }
  binder.out.op[2] = binder.source_slot(2, Type::u32);
  binder.set_more(offsets);
  binder.out.execute = bulk_copy;
  return true;
}

} // namespace ladder::instructions
