// What is counted, for each PTX instruction.
#pragma once

#include "machine/bank_model.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace ladder::machine {

/// The hardware counter that an access belongs to.
enum class AccessKind : std::uint8_t {
  none,
  shared_load, ///< ld.shared (and generic loads that hit shared memory)
  shared_store,
  ldmatrix, ///< counts as a load
  stmatrix, ///< counts as a store
  shared_atomic,
  async_copy,     ///< cp.async: writes shared memory, reads global memory
  tma_load,       ///< bulk and tensor copies to shared memory
  tma_store,      ///< those out of it
  matrix_operand, ///< wgmma: reads shared memory
  global_load,
  global_store,
  global_atomic,
  local_load,
  local_store,
};
inline constexpr int kAccessKinds = 15;

/// One instruction's traffic of one kind.
struct AccessCounters {
  std::uint64_t executed = 0;   ///< warp instructions that made an access of this kind
  std::uint64_t wavefronts = 0; ///< shared memory
  std::uint64_t passes = 0;
  std::uint64_t conflicts = 0;
  std::uint64_t ideal = 0;
  std::uint64_t sectors = 0; ///< global memory: distinct 32-byte sectors, summed over requests
  std::uint64_t bytes = 0;   ///< bulk copies: read from global memory, or written to it
  std::uint64_t unmodelled =
      0; ///< executions whose cost the model does not know; the sums then leave them out

  AccessCounters &operator+=(const AccessCounters &other);
};

/// Counts of one instruction. A generic ld may make both shared and global accesses, so there is room for two
/// kinds.
struct InstructionCounters {
  AccessKind kind[2] = {AccessKind::none, AccessKind::none};
  AccessCounters access[2];

  /// The counters of `kind`, claiming a free place the first time.
  AccessCounters &of(AccessKind wanted) {
    const int place = kind[0] == wanted || kind[0] == AccessKind::none ? 0 : 1;
    kind[place] = wanted;
    return access[place];
  }
};

/// One shared access of an instruction, with the addresses that its cost comes from.
struct SharedAccess {
  SharedCostCache::Op op = SharedCostCache::Op::load;
  unsigned width = 0;        ///< bytes a lane, or tiles of a matrix access
  std::uint32_t active = 0;  ///< lanes that made it
  LaneAddresses addresses{}; ///< of the active lanes; the others' mean nothing
  SharedCost cost;
  std::uint64_t block = 0; ///< linear index
  int warp = 0;
};

/// Indexed by instruction of a Code.
struct Counters {
  std::vector<std::uint64_t> executed; ///< warp instructions issued, predicated-off ones included
  std::vector<std::uint64_t>
      idle_lanes; ///< lanes that did not take part, summed: threads = 32 * executed - idle_lanes
  std::vector<InstructionCounters> access;
  /// Of each instruction that accessed shared memory, the access with the most conflicts; of equals that of
  /// the lowest block, and there the first.
  std::unordered_map<std::uint32_t, SharedAccess> worst;

  /// Keeps the access if it is the instruction's worst so far.
  void note(std::uint32_t instruction, const SharedAccess &candidate);

  explicit Counters(std::size_t instructions = 0)
      : executed(instructions), idle_lanes(instructions), access(instructions) {}
  Counters &operator+=(const Counters &other);
};

} // namespace ladder::machine
