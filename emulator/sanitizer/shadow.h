// Shadow memory: who last wrote and read each location, and which bytes have ever been written.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ladder::sanitizer {

/// Mask of all bytes of a granule: neighbours may share at 16-bit granularity.
inline constexpr std::uint8_t kAllBytes = 3;

/// One access. Epoch 0: none.
struct Access {
  enum Flag : std::uint8_t {
    strong = 1,      ///< atomic, volatile, or with a memory order: two of them do not race
    is_volatile = 2, ///< strong only by .volatile, which orders nothing between lanes of a warp
    collective = 4,  ///< by the whole warp (ldmatrix): the thread is the one that provided the address
    in_flight = 8,   ///< a copy that has not been waited for
    silent = 16,     ///< a store of the value already in memory
    guess = 32,      ///< a load before a compare-and-swap at the same place
    sums = 64,       ///< an atomic that adds floats: their order decides about the last bits
  };
  std::uint32_t epoch = 0;
  std::uint16_t thread = 0; ///< in its block
  std::uint8_t bytes = 0;   ///< mask of a granule's bytes; all of them in a larger cell
  std::uint8_t flags = 0;
  std::uint32_t instruction = 0;
  std::uint32_t block = 0;
};

/// The last write, and two reads: of reads by two threads, at least one is not by the writer.
struct Cell {
  Access write, reads[2];
};

/// Memory is divided into chunks, as wide as the widest access of a lane.
inline constexpr std::uint64_t kChunk = 16;
/// Accesses of a warp's lanes side by side are kept by row: the words of half a warp.
inline constexpr std::uint64_t kRow = 64;

/// Calls f(begin, end) for the part of [begin, begin + bytes) in each chunk.
template <typename F> inline void for_chunks(std::uint64_t begin, std::uint64_t bytes, F f) {
  const std::uint64_t end = begin + bytes;
  while (begin < end) {
    const std::uint64_t stop = std::min(end, begin / kChunk * kChunk + kChunk);
    f(begin, stop);
    begin = stop;
  }
}

/// The last accesses to a range of memory.
///
/// A cell represents bytes that were only ever accessed together. A row is whole if neighbouring threads
/// accessed its cells side by side. One cell then stands for the row: that of its first bytes; the others
/// differ only in their threads, which are consecutive. An access of any other shape divides the row into
/// chunks. A chunk starts as one cell and is halved, down to 2-byte granules, when an access covers only part
/// of it.
class Shadow {
public:
  /// `begin` and `bytes` must be multiples of kRow.
  Shadow(std::uint64_t begin, std::uint64_t bytes)
      : begin_(begin), rows_(bytes / kRow), log2_bytes_(bytes / kChunk, kInRow) {}

  /// Calls f(cell, address of its first accessed byte, mask of accessed bytes in its granule) for each cell
  /// of the bytes from `address` on.
  template <typename F> void visit(std::uint64_t address, std::uint64_t bytes, F f) {
    for_chunks(address, bytes, [&](std::uint64_t at, std::uint64_t end) {
      const std::size_t chunk = (at - begin_) / kChunk;
      const auto needed = std::max(unsigned(std::countr_zero(at | end | kChunk)), kLog2Granule);
      if (log2_bytes_[chunk] == kInRow)
        divide_row(chunk / kChunksOfRow);
      if (needed < log2_bytes_[chunk])
        divide(chunk, needed);
      const unsigned log2 = log2_bytes_[chunk];
      for (std::uint64_t next; at < end; at = next) {
        next = ((at >> log2) + 1) << log2;
        f(cells_[at % kChunk >> log2][chunk], at, log2 > kLog2Granule ? kAllBytes : granule_bytes(at, end));
      }
    });
  }

  /// True if the bytes, which must lie in one chunk, are whole cells and f(cell, its address) is true for
  /// each; stops at the first for which it is not.
  template <typename F> [[gnu::always_inline]] bool all_cells(std::uint64_t address, unsigned bytes, F f) {
    const std::size_t chunk = (address - begin_) / kChunk;
    if (log2_bytes_[chunk] == kInRow) [[unlikely]]
      divide_row(chunk / kChunksOfRow);
    const unsigned log2 = log2_bytes_[chunk];
    if ((address | bytes) & ((1u << log2) - 1))
      return false;
    const std::size_t first = address % kChunk >> log2;
    for (std::size_t i = first; i < first + (bytes >> log2); ++i)
      if (!f(cells_[i][chunk], begin_ + chunk * kChunk + (i << log2)))
        return false;
    return true;
  }

  /// The size of the cell at `address`, which is not in a whole row.
  std::uint64_t cell_bytes(std::uint64_t address) const {
    return std::uint64_t(1) << log2_bytes_[(address - begin_) / kChunk];
  }

  /// The cell that stands for the row at `address`, a multiple of kRow, for threads that access `bytes` (2,
  /// 4, 8 or 16) each; nullptr if the row is divided, or was accessed by other sizes.
  Cell *row(std::uint64_t address, unsigned bytes) {
    const std::size_t number = (address - begin_) / kRow;
    Row &row = rows_[number];
    if (row.cell_bytes == bytes)
      return &row.cell;
    if (row.cell_bytes || log2_bytes_[number * kChunksOfRow] != kInRow)
      return nullptr;
    row.cell_bytes = bytes;
    return &row.cell;
  }

  /// Calls f(address, bytes, cell) for all cells of memory that was accessed, in order.
  template <typename F> void for_cells(F f) const {
    for (std::size_t chunk = 0; chunk < log2_bytes_.size(); ++chunk) {
      const Row &row = rows_[chunk / kChunksOfRow];
      const bool is_whole = log2_bytes_[chunk] == kInRow;
      if (is_whole && !row.cell_bytes)
        continue;
      const std::size_t bytes = is_whole ? row.cell_bytes : std::size_t(1) << log2_bytes_[chunk];
      for (std::size_t at = 0; at < kChunk; at += bytes)
        f(begin_ + chunk * kChunk + at, bytes,
          is_whole ? cell_of_row(row, chunk % kChunksOfRow * kChunk + at) : cells_[at / bytes][chunk]);
    }
  }

private:
  static constexpr unsigned kLog2Granule = 1;
  static constexpr std::size_t kChunksOfRow = kRow / kChunk;
  static constexpr std::uint8_t kInRow = 0; ///< in place of a chunk's log2_bytes_: its row is whole
  struct Row {
    Cell cell;
    std::uint32_t cell_bytes = 0; ///< 0: not accessed yet, or divided
  };

  /// Mask of the bytes of the granule at or before `at` that lie in [at, end).
  static std::uint8_t granule_bytes(std::uint64_t at, std::uint64_t end) {
    return at % 2 ? 2 : end - at == 1 ? 1 : kAllBytes;
  }

  /// The cell `offset` bytes into a whole row.
  static Cell cell_of_row(const Row &row, std::size_t offset) {
    const auto threads = std::uint16_t(offset / row.cell_bytes);
    Cell cell = row.cell;
    for (Access *const access : {&cell.write, &cell.reads[0], &cell.reads[1]})
      if (access->epoch)
        access->thread = std::uint16_t(access->thread + threads);
    return cell;
  }

  [[gnu::noinline]] void divide_row(std::size_t number) {
    Row &row = rows_[number];
    const std::size_t bytes = row.cell_bytes ? row.cell_bytes : kChunk, cells = kChunk / bytes;
    for (std::size_t i = 0; i < cells; ++i)
      cells_[i].resize(log2_bytes_.size());
    for (std::size_t chunk = 0; chunk < kChunksOfRow; ++chunk) {
      log2_bytes_[number * kChunksOfRow + chunk] = std::uint8_t(std::countr_zero(bytes));
      for (std::size_t i = 0; row.cell_bytes && i < cells; ++i)
        cells_[i][number * kChunksOfRow + chunk] = cell_of_row(row, chunk * kChunk + i * bytes);
    }
    row.cell_bytes = 0;
  }

  void divide(std::size_t chunk, unsigned log2) {
    const unsigned halvings = log2_bytes_[chunk] - log2;
    for (std::size_t i = kChunk >> log2; i-- > 0;) { // downwards: copies of a cell go to its place or above
      cells_[i].resize(log2_bytes_.size());
      cells_[i][chunk] = cells_[i >> halvings][chunk];
    }
    log2_bytes_[chunk] = std::uint8_t(log2);
  }

  std::uint64_t begin_;
  std::vector<Row> rows_;
  std::vector<std::uint8_t> log2_bytes_; ///< by chunk: size of its cells, or kInRow
  /// The first cells of all chunks, then the second ones, and so on; empty while no chunk has that many.
  std::array<std::vector<Cell>, (kChunk >> kLog2Granule)> cells_;
};

/// Which bytes have been written.
class WrittenBytes {
public:
  /// `begin` must be a multiple of kChunk.
  WrittenBytes(std::uint64_t begin, std::uint64_t bytes)
      : begin_(begin), bytes_(bytes), written_(bytes / kChunk + 1) {}
  std::uint64_t size() const { return bytes_; }
  void mark(std::uint64_t address, std::uint64_t bytes) {
    for_chunks(address, bytes, [&](std::uint64_t at, std::uint64_t end) {
      written_[(at - begin_) / kChunk] |= bits(at, end);
    });
  }
  bool any(std::uint64_t address, std::uint64_t bytes) const {
    std::uint16_t found = 0;
    for_chunks(address, bytes, [&](std::uint64_t at, std::uint64_t end) {
      found |= written_[(at - begin_) / kChunk] & bits(at, end);
    });
    return found;
  }
  /// Bit i is set if byte i has not been written; of at most 32 bytes.
  std::uint32_t missing(std::uint64_t address, unsigned bytes) const {
    std::uint32_t mask = 0;
    for (unsigned i = 0; i < bytes; ++i)
      mask |= std::uint32_t(!any(address + i, 1)) << i;
    return mask;
  }
  bool all(std::uint64_t address, std::uint64_t bytes) const {
    std::uint16_t missing = 0;
    for_chunks(address, bytes, [&](std::uint64_t at, std::uint64_t end) {
      missing |= std::uint16_t(~written_[(at - begin_) / kChunk] & bits(at, end));
    });
    return !missing;
  }

private:
  /// Mask of [at, end) within its chunk.
  static std::uint16_t bits(std::uint64_t at, std::uint64_t end) {
    return std::uint16_t(((1u << (end - at)) - 1) << at % kChunk);
  }
  std::uint64_t begin_, bytes_;
  std::vector<std::uint16_t> written_; ///< by chunk: mask of its bytes
};

/// Shadow of global memory during one launch: the pages touched.
class GlobalShadow {
public:
  template <typename F> void visit(std::uint64_t address, std::uint64_t bytes, F f) {
    const std::uint64_t end = address + bytes;
    while (address < end) {
      const std::uint64_t stop = std::min(end, address / kPageBytes * kPageBytes + kPageBytes);
      page(address / kPageBytes).visit(address, stop - address, f);
      address = stop;
    }
  }

  /// Like Shadow::row.
  Cell *row(std::uint64_t address, unsigned bytes) { return page(address / kPageBytes).row(address, bytes); }

  /// Calls f(address, bytes, cell) for the cells of all touched pages, in order.
  template <typename F> void for_cells(F f) const {
    std::vector<std::uint64_t> numbers;
    for (const auto &[number, page] : pages_)
      numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    for (const std::uint64_t number : numbers)
      pages_.at(number)->for_cells(f);
  }

private:
  static constexpr std::uint64_t kPageBytes = 4096;
  Shadow &page(std::uint64_t number) {
    if (number != last_number_ || !last_) {
      auto &page = pages_[number];
      if (!page)
        page = std::make_unique<Shadow>(number * kPageBytes, kPageBytes);
      last_ = page.get();
      last_number_ = number;
    }
    return *last_;
  }

  std::unordered_map<std::uint64_t, std::unique_ptr<Shadow>> pages_;
  Shadow *last_ = nullptr;
  std::uint64_t last_number_ = 0;
};

} // namespace ladder::sanitizer
