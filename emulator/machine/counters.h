// What is counted, for each PTX instruction.
#pragma once

#include <cstdint>
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
  async_copy, ///< cp.async: writes shared memory, reads global memory
  global_load,
  global_store,
  global_atomic,
  local_load,
  local_store,
};
inline constexpr int kAccessKinds = 12;

/// One instruction's traffic of one kind.
struct AccessCounters {
  std::uint64_t executed = 0;   ///< warp instructions that made an access of this kind
  std::uint64_t wavefronts = 0; ///< shared memory
  std::uint64_t passes = 0;
  std::uint64_t conflicts = 0;
  std::uint64_t ideal = 0;
  std::uint64_t sectors = 0; ///< global memory: distinct 32-byte sectors, summed over requests
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

/// Indexed by instruction of a Code.
struct Counters {
  std::vector<std::uint64_t> executed; ///< warp instructions issued, predicated-off ones included
  std::vector<std::uint64_t>
      idle_lanes; ///< lanes that did not take part, summed: threads = 32 * executed - idle_lanes
  std::vector<InstructionCounters> access;

  explicit Counters(std::size_t instructions = 0)
      : executed(instructions), idle_lanes(instructions), access(instructions) {}
  Counters &operator+=(const Counters &other);
};

} // namespace ladder::machine
