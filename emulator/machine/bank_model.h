// The shared-memory bank model: how many wavefronts an access takes and how many of them are conflicts.
//
// 32 banks of 4 bytes. An access is served in passes; in a pass every bank gives one word a wavefront, and
// lanes that want the same word are served together. So a pass takes as many wavefronts as the largest number
// of distinct words that its active lanes want from one bank, and whatever is above one a pass is a conflict.
// The rules for how lanes fall into passes were fitted to the hardware's counters;
// tests/emulator/test_bank_model.py holds every case measured.
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
  std::uint32_t conflicts = 0; ///< wavefronts - passes, but see the atomics
  std::uint32_t ideal =
      0; ///< distinct 128-byte worths of data: ceil(distinct bytes / 128), 0 without active lanes
};

/// ld.shared of `bytes` (1, 2, 4, 8, 16) a lane.
SharedCost shared_load(const LaneAddresses &addresses, std::uint32_t active, unsigned bytes);
/// st.shared of `bytes` a lane.
SharedCost shared_store(const LaneAddresses &addresses, std::uint32_t active, unsigned bytes);
/// ldmatrix and stmatrix of `matrices` (1, 2, 4) 8x8 tiles: lanes 8i..8i+7 give the rows of tile i.
SharedCost shared_matrix(const LaneAddresses &addresses, unsigned matrices);
/// atom.shared.add.u32 and its like (one atomic operation a lane, result used).
SharedCost shared_atomic(const LaneAddresses &addresses, std::uint32_t active);
/// atom.shared.cas.b32.
SharedCost shared_compare_and_swap(const LaneAddresses &addresses, std::uint32_t active);
/// cp.async of 16 bytes: never a conflict.
SharedCost shared_async_copy16(const LaneAddresses &addresses, std::uint32_t active);

/// Remembers each instruction's last pattern. A cost does not change when all addresses move by a multiple of
/// 128 bytes, which is what most loops do, so a comparison saves the count. One a block.
class SharedCostCache {
public:
  enum class Op : std::uint8_t { load, store, matrix, atomic, compare_and_swap };
  /// The cost of the access that the instruction with this index makes: `width` is bytes a lane, or tiles of
  /// a matrix access. For a hit, inactive lanes must hold the address of an active one.
  const SharedCost &cost(std::uint32_t instruction, Op op, const LaneAddresses &addresses,
                         std::uint32_t active, unsigned width);
  /// Whether the last call had to count, because the pattern was not the one remembered.
  bool has_counted() const { return has_counted_; }

  /// The same without remembering anything.
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
  std::uint32_t lanes =
      0; ///< served together; for a matrix access, lanes that give the addresses of its rows
  std::uint32_t wavefronts = 0;
};

/// The passes of an access in order, for those who want to see them. Their wavefronts add up to the cost's,
/// but for compare_and_swap, which goes through its one pass twice.
std::vector<SharedPass> shared_passes(SharedCostCache::Op op, const LaneAddresses &addresses,
                                      std::uint32_t active, unsigned width);

} // namespace ladder::machine
