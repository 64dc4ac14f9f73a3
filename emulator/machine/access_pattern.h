// The last access pattern of an instruction. Most loops repeat the same pattern at another address; then the
// cost and the lanes' relative positions are already known.
#pragma once

#include "machine/bank_model.h"
#include "machine/counters.h"

#include <cstdint>
#include <cstring>

namespace ladder::machine {

struct MemoryRange;

/// The last pattern of one instruction, made by all the lanes that count. One per block and instruction.
///
/// Addresses are relative to the first one rounded down to a period: moving all of them by a multiple of the
/// period does not change the cost. Hits are counted and settled when the pattern changes or the block ends.
class AccessPattern {
public:
  static constexpr std::uint32_t kBankPeriod = 128; ///< shared memory, in bytes
  static constexpr std::uint64_t kSectorPeriod = 32;

  enum class Shape : std::uint8_t {
    scattered,
    same,  ///< all lanes have the same address
    dense, ///< each lane's bytes follow the previous lane's
  };

  /// True if the access at registers[lane] + offset matches the remembered pattern; `base` is then what its
  /// addresses are relative to. Compares only the first `Lanes` lanes.
  template <int Lanes, class Word>
  [[gnu::always_inline]] bool fits(const Word *registers, Word offset, Word period, Word &base) const {
    base = (registers[0] + offset) & ~(period - 1);
    const Word move = base - offset;
    return is_known_ && are_equal<Lanes>(registers, move, relative_of(Word()));
  }

  /// True if all bytes lie in [begin, end), which must be below 2^62.
  bool lies_within(std::uint64_t base, std::uint64_t begin, std::uint64_t end) const {
    return std::int64_t(base) + lowest_ >= std::int64_t(begin) &&
           std::int64_t(base) + highest_ <= std::int64_t(end);
  }

  Shape shape() const { return shape_; }
  /// By lane, relative to the base.
  const std::uint32_t *shared_offsets() const { return narrow_; }
  const std::uint64_t *global_offsets() const { return wide_; }
  void hit() { ++hits_; }
  /// The range of a global access.
  const MemoryRange *range() const { return range_; }

  /// Remembers a valid access that is not counted yet. The first `lanes` lanes count.
  void remember(const std::uint32_t *addresses, int lanes, unsigned bytes, const SharedCost &cost);
  void remember(const std::uint64_t *addresses, unsigned bytes, unsigned sectors, const MemoryRange *range);
  /// Wavefronts and sectors of the hits that are not settled.
  std::uint64_t open_wavefronts() const { return hits_ * cost_.wavefronts; }
  std::uint64_t open_sectors() const { return hits_ * sectors_; }
  /// Adds the hits to the instruction's counters of `kind`.
  void settle(AccessCounters &counters);

  AccessKind kind = AccessKind::none; ///< what the hits count as; none: nothing to settle
  std::uint32_t instruction = 0;
  std::uint32_t accesses_per_hit = 1; ///< `remember` sets it to one

private:
  const std::uint32_t *relative_of(std::uint32_t) const { return narrow_; }
  const std::uint64_t *relative_of(std::uint64_t) const { return wide_; }
  /// True if registers[lane] - move == relative[lane] in each lane.
  template <int Lanes, class Word>
  [[gnu::always_inline]] static bool are_equal(const Word *registers, Word move, const Word *relative) {
    typedef Word Words [[gnu::vector_size(32)]];
    Words differ = {};
    for (int lane = 0; lane < Lanes; lane += sizeof(Words) / sizeof(Word)) {
      Words here, expected;
      std::memcpy(&here, registers + lane, sizeof here);
      std::memcpy(&expected, relative + lane, sizeof expected);
      differ |= (here - move) ^ expected;
    }
    typedef long long Quarters [[gnu::vector_size(32)]];
    const auto quarters = Quarters(differ);
#if defined(__AVX__) // GCC's own reduction takes longer than the comparison
    return __builtin_ia32_ptestz256(quarters, quarters);
#else
    return (quarters[0] | quarters[1] | quarters[2] | quarters[3]) == 0;
#endif
  }
  template <class Word>
  void remember(const Word *addresses, int lanes, unsigned bytes, Word period, Word *relative);

  union {
    alignas(64) std::uint32_t narrow_[32] = {};
    alignas(64) std::uint64_t wide_[32];
  };
  bool is_known_ = false;
  Shape shape_ = Shape::scattered;
  std::int64_t lowest_ = 0, highest_ = 0; ///< bytes from the base; highest_ is one past the last
  std::uint64_t hits_ = 0;
  SharedCost cost_;
  unsigned sectors_ = 0;
  const MemoryRange *range_ = nullptr;
};

} // namespace ladder::machine
