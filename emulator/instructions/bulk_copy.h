// cp.async.bulk and relatives: one thread moves a span of memory, or a box of a tensor (TMA).
#pragma once

#include "instructions/binder.h"
#include "instructions/tensor_map.h"
#include "machine/bulk.h"
#include "machine/warp.h"

#include <array>
#include <cstdint>
#include <optional>

namespace ladder::instructions {

enum class BulkKind : std::uint32_t {
  load,     ///< global to shared memory
  store,    ///< shared to global memory
  exchange, ///< this block's shared memory to another block's
  prefetch, ///< to the L2 cache
};

/// One lane's request.
struct BulkCopy {
  BulkKind kind = BulkKind::load;
  std::uint64_t shared = 0; ///< shared address: destination of a load, else the source
  std::uint64_t other = 0;  ///< global address; for an exchange, the destination
  std::uint64_t bytes = 0;
  std::uint64_t shared_extent = 0; ///< span of shared memory from first to last byte
  std::uint64_t mbarrier = 0;      ///< loads and exchanges
  bool reduces = false;            ///< a reduction, atomic per element
  std::optional<TensorMap> map;    ///< boxes only
  std::array<std::int32_t, kMostDimensions> coordinates{};
  std::optional<std::uint32_t> cta_mask; ///< multicast: the destinations' ranks in the cluster

  bool operator==(const BulkCopy &) const = default;
};

BulkKind bulk_kind(const machine::Instruction &in);
/// Throws FaultError for an invalid tensor map and for misaligned addresses or sizes.
BulkCopy bulk_copy_of(machine::Warp &warp, const machine::Instruction &in, int lane);

/// Lands the bulk copies bound for this mbarrier of the block, in the order of their issue, and completes
/// their bytes on it, until its phase is complete. Runs only when a thread looks at the mbarrier, so that a
/// missing wait shows.
void land_bulk_copies(machine::Block &block, std::uint32_t mbarrier);

/// Sends `copy` to the block that holds its destination and mbarrier, given as shared::cluster addresses.
void send_to_cluster(machine::Warp &warp, int lane, std::uint64_t destination, std::uint64_t mbarrier,
                     machine::BulkCopyInFlight copy);

/// Reads the tensor map at a generic address. Throws FaultError that explains what is wrong.
TensorMap read_tensor_map(machine::Warp &warp, std::uint64_t address, int lane);

/// An H200 reports an illegal address if the tensor's first byte is not in memory, wherever the box lies.
void require_tensor_in_memory(machine::Warp &warp, const TensorMap &map, int lane);

bool bind_bulk_copy(Binder &binder);

} // namespace ladder::instructions
