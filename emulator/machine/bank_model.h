// The shared memory bank model: how many wavefronts an access takes and how many of them are conflicts.
//
// 32 banks of 4 bytes. An access is served in passes; in a pass every bank delivers one word per wavefront,
// and lanes that access the same word share it. So a pass takes as many wavefronts as the most distinct words
// that its active lanes access in one bank; every wavefront beyond the first of a pass is a conflict. The
// assignment of lanes to passes was fitted to hardware counters; tests/emulator/test_bank_model.py holds
// every measured case.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace ladder::machine {

/// Byte addresses of the 32 lanes, or of the rows of a matrix instruction.
using LaneAddresses = std::array<std::uint32_t, 32>;

struct SharedCost {
  std::uint32_t wavefronts = 0;
  std::uint32_t passes = 0;
  std::uint32_t conflicts = 0; ///< wavefronts - passes, except for atomics
  /// ceil(distinct bytes / 128); 0 without active lanes.
  std::uint32_t ideal = 0;
};

/// ld.shared of `bytes` (1, 2, 4, 8, 16) per lane.
SharedCost shared_load(const LaneAddresses &addresses, std::uint32_t active, unsigned bytes);
/// st.shared of `bytes` per lane.
SharedCost shared_store(const LaneAddresses &addresses, std::uint32_t active, unsigned bytes);
/// ldmatrix and stmatrix of `matrices` (1, 2, 4) 8x8 tiles: lanes 8i..8i+7 address the rows of tile i.
SharedCost shared_matrix(const LaneAddresses &addresses, unsigned matrices);
/// atom.shared.add.u32 and similar (one atomic operation per lane, result used).
SharedCost shared_atomic(const LaneAddresses &addresses, std::uint32_t active);
/// atom.shared.cas.b32.
SharedCost shared_compare_and_swap(const LaneAddresses &addresses, std::uint32_t active);
/// cp.async of 16 bytes: never conflicts.
SharedCost shared_async_copy16(const LaneAddresses &addresses, std::uint32_t active);

/// Caches the cost of each instruction's last pattern. Moving all addresses by a multiple of 128 bytes, as
/// most loops do, does not change the cost, so a comparison replaces the computation. One per block.
class SharedCostCache {
public:
  enum class Op : std::uint8_t { load, store, matrix, atomic, compare_and_swap };
  /// The cost of this instruction's access. `width` is bytes per lane, or tiles of a matrix access. Inactive
  /// lanes must hold an active lane's address, or the cache misses.
  const SharedCost &cost(std::uint32_t instruction, Op op, const LaneAddresses &addresses,
                         std::uint32_t active, unsigned width);
  /// True if the last call missed.
  bool has_counted() const { return has_counted_; }

  /// The same without the cache.
  static SharedCost compute(Op op, const LaneAddresses &addresses, std::uint32_t active, unsigned width);

private:
  static constexpr std::uint32_t kEntries = 64;
  struct Entry {
    std::uint32_t key = 0; ///< instruction + 1
    std::uint32_t active = 0;
    SharedCost cost;
    LaneAddresses relative{};
  };
  std::array<Entry, kEntries> entries_{};
  bool has_counted_ = false;
};

struct SharedPass {
  /// Lanes served together; for a matrix access, lanes that address its rows.
  std::uint32_t lanes = 0;
  std::uint32_t wavefronts = 0;
};

/// The passes of an access, in order. Their wavefronts add up to the total cost, except for compare_and_swap,
/// which runs its one pass twice.
std::vector<SharedPass> shared_passes(SharedCostCache::Op op, const LaneAddresses &addresses,
                                      std::uint32_t active, unsigned width);

} // namespace ladder::machine
