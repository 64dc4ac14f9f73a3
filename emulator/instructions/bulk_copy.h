// cp.async.bulk and its like: one thread moves a stretch of memory, or a box of a tensor (TMA).
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
  exchange, ///< the block's shared memory to another block's
  prefetch, ///< to the L2 cache
};

/// What one lane asks for.
struct BulkCopy {
  BulkKind kind = BulkKind::load;
  std::uint64_t shared = 0; ///< shared address: of the destination of a load, else of the source
  std::uint64_t other = 0;  ///< global address, or for an exchange the destination's
  std::uint64_t bytes = 0;
  std::uint64_t shared_extent = 0; ///< bytes of shared memory from the first to the last
  std::uint64_t mbarrier = 0;      ///< of loads and exchanges
  std::optional<TensorMap> map;    ///< of a box
  std::array<std::int32_t, kMostDimensions> coordinates{};
  std::optional<std::uint32_t> cta_mask; ///< multicast: the destinations' ranks in the cluster
};

BulkKind bulk_kind(const machine::Instruction &in);
/// Throws FaultError for a tensor map that is none, and for addresses and sizes that are not aligned.
BulkCopy bulk_copy_of(machine::Warp &warp, const machine::Instruction &in, int lane);

/// Writes what bulk copies bring to this mbarrier of the block, and tells it. Done when somebody looks at it,
/// so that a missing wait shows.
void land_bulk_copies(machine::Block &block, std::uint32_t mbarrier);

/// Sends `copy` to the block that holds its destination and mbarrier, given as shared::cluster addresses.
void send_to_cluster(machine::Warp &warp, int lane, std::uint64_t destination, std::uint64_t mbarrier,
                     machine::BulkCopyInFlight copy);

/// The tensor map at a generic address. Throws FaultError in words.
TensorMap read_tensor_map(machine::Warp &warp, std::uint64_t address, int lane);

bool bind_bulk_copy(Binder &binder);

} // namespace ladder::instructions
