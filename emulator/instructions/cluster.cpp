// Interaction of the blocks of a cluster: mapa, getctarank, barrier.cluster, st.async, red.async. PTX ISA,
// "Data Movement and Conversion Instructions" and "Parallel Synchronization".
#include "machine/cluster.h"

#include "instructions/addressing.h"
#include "instructions/bulk_copy.h"
#include "instructions/cluster.h"
#include "instructions/elementwise.h"
#include "instructions/mma.h"
#include "instructions/reduction.h"
#include "machine/address_space.h"

#include <cstring>
#include <string>

namespace ladder::instructions {

using machine::BulkCopyInFlight;
using machine::FaultError;
using machine::FaultKind;
using machine::Instruction;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

// --- addresses

// op[0] the result, op[1] the address, op[2] the rank; flags: 64-bit address, generic address.
constexpr std::uint32_t kWide = 1, kGeneric = 2;

std::uint64_t address_in(Warp &warp, const Instruction &in, int lane) {
  const std::uint64_t address = in.flags & kWide ? warp.lanes<std::uint64_t>(in.op[1])[lane]
                                                 : warp.lanes<std::uint32_t>(in.op[1])[lane];
  if (!(in.flags & kGeneric))
    return address;
  if ((address & machine::kWindowMask) != machine::kSharedWindow)
    throw FaultError(FaultKind::bad_operand, "a generic address that is not in shared memory", lane)
        .at(address);
  return address - machine::kSharedWindow;
}

void map_address(Warp &warp, const Instruction &in) {
  const std::uint32_t *const ranks = warp.lanes<std::uint32_t>(in.op[2]);
  for_lanes(warp.active(), [&](int lane) {
    const std::uint32_t size = warp.block().cluster().size();
    if (ranks[lane] >= size)
      throw FaultError(FaultKind::bad_operand,
                       "mapa for the block of rank " + std::to_string(ranks[lane]) + " in a cluster of " +
                           std::to_string(size),
                       lane);
    const std::uint64_t address = address_in(warp, in, lane);
    warp.block().owner(address, lane);
    const std::uint64_t mapped =
        machine::cluster_address(ranks[lane], std::uint32_t(address) & machine::kOffsetInBlock);
    if (in.flags & kWide)
      warp.lanes<std::uint64_t>(in.op[0])[lane] = mapped + (in.flags & kGeneric ? machine::kSharedWindow : 0);
    else
      warp.lanes<std::uint32_t>(in.op[0])[lane] = std::uint32_t(mapped);
  });
}

void rank_of_address(Warp &warp, const Instruction &in) {
  for_lanes(warp.active(), [&](int lane) {
    warp.lanes<std::uint32_t>(in.op[0])[lane] =
        warp.block().owner(address_in(warp, in, lane), lane).cluster_rank();
  });
}

void set_space(Binder &binder, Type type) {
  binder.out.flags =
      (ptx::type_bytes(type) == 8 ? kWide : 0) | (binder.has("shared::cluster") ? 0 : kGeneric);
}

bool bind_mapa(Binder &binder) {
  since(binder, 90);
  const Type type = binder.type();
  set_space(binder, type);
  binder.out.op[0] = binder.destination_slot(0, type);
  binder.out.op[1] = binder.source_slot(1, type);
  binder.out.op[2] = binder.source_slot(2, Type::u32);
  binder.out.execute = map_address;
  return true;
}

bool bind_getctarank(Binder &binder) {
  since(binder, 90);
  const Type type = binder.type();
  set_space(binder, type);
  binder.out.op[0] = binder.destination_slot(0, Type::u32);
  binder.out.op[1] = binder.source_slot(1, type);
  binder.out.execute = rank_of_address;
  return true;
}

// --- barriers

void arrive_at_cluster(Warp &warp, const Instruction &) { warp.block().cluster().arrive(warp); }

void wait_for_cluster(Warp &warp, const Instruction &) {
  if (warp.block().cluster().wait(warp))
    return;
  warp.wait_for([](Warp &waiting) {
    return std::to_string(waiting.block().cluster().missing_arrivals()) +
           " threads of the cluster that have not arrived";
  });
}

// --- st.async, red.async

// op[0] the destination address, op[1] the mbarrier's; more: their offsets (64 bits each), then the slots of
// the elements. imm is the Combine of red.async.
constexpr std::uint32_t kBaseBits = 3;
constexpr int kElementsShift = 6, kBytesShift = 10;

std::uint32_t elements_of(const Instruction &in) { return in.flags >> kElementsShift & 15; }
unsigned element_bytes_of(const Instruction &in) { return in.flags >> kBytesShift & 15; }

void store_async(Warp &warp, const Instruction &in) {
  const std::uint32_t *const slots = warp.more(in) + 4;
  const unsigned bytes = element_bytes_of(in);
  for_lanes(warp.active(), [&](int lane) {
    const AsyncStore store = async_store_of(warp, in, lane);
    if (store.to % store.bytes)
      throw FaultError(FaultKind::misaligned,
                       "an access of " + std::to_string(store.bytes) +
                           " bytes at an address that is not a multiple of that",
                       lane)
          .at(store.to);
    BulkCopyInFlight flight;
    flight.data.resize(store.bytes);
    for (std::uint32_t i = 0; i < elements_of(in); ++i) {
      const std::uint64_t value =
          bytes == 8 ? warp.lanes<std::uint64_t>(slots[i])[lane] : warp.lanes<std::uint32_t>(slots[i])[lane];
      std::memcpy(flight.data.data() + i * bytes, &value, bytes);
    }
    flight.combine = reinterpret_cast<machine::Combine>(std::uintptr_t(in.imm));
    send_to_cluster(warp, lane, store.to, store.mbarrier, std::move(flight));
  });
}

bool bind_store_async(Binder &binder) {
  if (!binder.has("async"))
    return false;
  since(binder, 90);
  if (!binder.has("mbarrier::complete_tx::bytes"))
    binder.unsupported("an asynchronous store without an mbarrier");
  const Type type = binder.type();
  const unsigned bytes = ptx::type_bytes(type);
  if (bytes != 4 && bytes != 8)
    binder.unsupported("elements that are not of 4 or 8 bytes");
  machine::Instruction &out = binder.out;
  const Binder::Address to = binder.address(binder.operand(0)), mbarrier = binder.address(binder.operand(2));
  const Operand &value = binder.operand(1);
  out.op[0] = to.slot;
  out.op[1] = mbarrier.slot;
  std::vector<std::uint32_t> more;
  for (const std::int64_t offset : {to.offset, mbarrier.offset}) {
    more.push_back(std::uint32_t(offset));
    more.push_back(std::uint32_t(std::uint64_t(offset) >> 32));
  }
  const bool is_vector = value.kind == Operand::Kind::vector;
  const std::size_t elements = is_vector ? value.elements.size() : 1;
  if (elements > 4)
    binder.unsupported("more than 4 elements");
  for (std::size_t i = 0; i < elements; ++i)
    more.push_back(binder.source_slot(is_vector ? value.elements[i] : value, type));
  out.flags = std::uint32_t(to.base) | std::uint32_t(mbarrier.base) << kBaseBits |
              std::uint32_t(elements) << kElementsShift | bytes << kBytesShift;
  for (const std::string_view operation : {"add", "min", "max", "inc", "dec", "and", "or", "xor"})
    if (binder.has(operation)) {
      const machine::Combine combine = find_reduction(operation, type);
      if (!combine)
        binder.unsupported("." + std::string(operation) + " on ." + std::string(ptx::type_name(type)));
      out.imm = std::int64_t(reinterpret_cast<std::uintptr_t>(combine));
    }
  binder.set_more(more);
  out.execute = store_async;
  return true;
}

constexpr TableEntry kTable[] = {
    {"mapa", bind_mapa},      {"getctarank", bind_getctarank}, {"barrier", bind_cluster_barrier},
    {"st", bind_store_async}, {"red", bind_store_async},
};

} // namespace

bool bind_cluster_barrier(Binder &binder) {
  if (!binder.has("cluster"))
    return false;
  since(binder, 90);
  if (!binder.has("arrive") && !binder.has("wait"))
    return false;
  binder.out.execute = binder.has("arrive") ? arrive_at_cluster : wait_for_cluster;
  return true;
}

AsyncStore async_store_of(Warp &warp, const Instruction &in, int lane) {
  const std::uint32_t *const more = warp.more(in);
  const auto address = [&](std::uint32_t base, std::uint32_t slot, const std::uint32_t *offset) {
    std::uint64_t addresses[32];
    lane_addresses(warp, Binder::Address::Base(base), slot,
                   std::int64_t(offset[0] | std::uint64_t(offset[1]) << 32), addresses);
    return addresses[lane];
  };
  return {.to = address(in.flags & 7, in.op[0], more),
          .mbarrier = address(in.flags >> kBaseBits & 7, in.op[1], more + 2),
          .bytes = elements_of(in) * element_bytes_of(in),
          .reduces = in.imm != 0};
}

std::span<const TableEntry> cluster_table() { return kTable; }

} // namespace ladder::instructions
