// What is remembered of memory: who wrote and read it last, and what has been written at all.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ladder::sanitizer {

/// One access. Epoch 0: none.
struct Access {
  enum Flag : std::uint8_t {
    strong = 1,      ///< atomic, volatile, or with an order: two of them do not race
    is_volatile = 2, ///< strong by .volatile alone, which orders nothing between the lanes of a warp
    collective = 4,  ///< by the warp as a whole (ldmatrix): the thread is the one that gave the address
    in_flight = 8,   ///< cp.async that has not been waited for
    silent = 16,     ///< a store of what was there already
  };
  std::uint32_t epoch = 0;
  std::uint16_t thread = 0; ///< in its block
  std::uint8_t bytes = 0;   ///< which of the granule's, a bit each
  std::uint8_t flags = 0;
  std::uint32_t instruction = 0;
  std::uint32_t block = 0;
};

inline constexpr std::uint64_t kGranule =
    2; ///< bytes a cell stands for: what neighbours may share is 16 bits

/// The granule that holds the address, by its first byte.
inline std::uint64_t granule_of(std::uint64_t address) { return address / kGranule * kGranule; }

/// The last write, and two reads: with two threads' reads at hand, one at least is another thread's than the
/// writer's.
struct Cell {
  Access write, reads[2];
};

/// Shared memory of a block.
struct SharedShadow {
  explicit SharedShadow(std::uint32_t end) : cells(end / kGranule + 1), written(end, 0) {}
  std::vector<Cell> cells;
  std::vector<std::uint8_t> written; ///< a byte each
};

/// Global memory in one launch: cells of the pages that are touched.
class GlobalShadow {
public:
  Cell &cell(std::uint64_t address) {
    const std::uint64_t page = address / kPageBytes;
    if (page != last_page_ || !last_) {
      auto &cells = pages_[page];
      if (!cells)
        cells = std::make_unique<Page>();
      last_ = cells.get();
      last_page_ = page;
    }
    return (*last_)[address % kPageBytes / kGranule];
  }

  /// Calls f(address of a granule, cell) for those of all pages that were touched, in order.
  template <typename F> void for_cells(F f) const {
    std::vector<std::uint64_t> numbers;
    for (const auto &[number, page] : pages_)
      numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    for (const std::uint64_t number : numbers)
      for (std::size_t i = 0; i < kPageBytes / kGranule; ++i)
        f(number * kPageBytes + i * kGranule, (*pages_.at(number))[i]);
  }

private:
  static constexpr std::uint64_t kPageBytes = 1024;
  using Page = std::array<Cell, kPageBytes / kGranule>;
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  Page *last_ = nullptr;
  std::uint64_t last_page_ = 0;
};

} // namespace ladder::sanitizer
