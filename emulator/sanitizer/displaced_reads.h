// Reads of shared memory that their cells no longer hold.
//
// A cell keeps two reads. Where three warps or more read the same bytes without any order among them, the
// reads of those between the first and the last warp are kept here, until a write to the bytes: it must be
// ordered after them, too.
#pragma once

#include "sanitizer/shadow.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace ladder::sanitizer {

/// A thread's reads in a row of memory; or those of a whole row, by consecutive threads.
struct DisplacedRead {
  Access access;
  std::uint32_t granules = 0;   ///< bit i: the row's granule i
  std::uint32_t lane_bytes = 0; ///< of each consecutive thread; 0: one thread, or a whole warp, read all

  /// The read of a granule.
  Access of_granule(unsigned granule) const {
    Access read = access;
    if (lane_bytes)
      read.thread = std::uint16_t(read.thread + granule * kGranule / lane_bytes);
    return read;
  }

  static constexpr unsigned kGranule = 2; ///< bytes
};

class DisplacedReads {
public:
  /// Of memory from address `begin`, a multiple of kRow, on.
  DisplacedReads(std::uint64_t begin, std::uint64_t bytes) : begin_(begin), bytes_(bytes) {}

  /// Records a read of at most 16 bytes within one row.
  void add(std::uint64_t address, std::uint64_t bytes, const Access &read) {
    const std::uint32_t granules = (1u << bytes / DisplacedRead::kGranule) - 1;
    add_to_row((address - begin_) / kRow, {read, granules << address % kRow / DisplacedRead::kGranule, 0});
  }
  /// Reads of the row at `address` by consecutive threads, `read` by the first of them.
  void add_row(std::uint64_t address, const Access &read, unsigned lane_bytes) {
    add_to_row((address - begin_) / kRow, {read, ~0u, lane_bytes});
  }

  /// True if f(read, mask of written bytes in its granule) is true for a read of one of the written bytes;
  /// stops at the first for which it is.
  template <typename F> bool any_of(std::uint64_t address, std::uint64_t bytes, F f) const {
    if (rows_.empty())
      return false;
    address -= begin_;
    const std::uint64_t end = address + bytes;
    for (std::uint64_t row = address / kRow; row * kRow < end; ++row)
      for (const DisplacedRead &read : rows_[row])
        for (std::uint32_t left = read.granules & granules(row, address, end); left; left &= left - 1) {
          const auto granule = unsigned(std::countr_zero(left));
          const std::uint64_t place = row * kRow + granule * DisplacedRead::kGranule;
          if (f(read.of_granule(granule), std::uint8_t((place >= address) | (place + 1 < end) << 1)))
            return true;
        }
    return false;
  }

  /// Of a granule that is written in part, too.
  void forget(std::uint64_t address, std::uint64_t bytes) {
    if (rows_.empty())
      return;
    address -= begin_;
    const std::uint64_t end = address + bytes;
    for (std::uint64_t row = address / kRow; row * kRow < end; ++row) {
      for (DisplacedRead &read : rows_[row])
        read.granules &= ~granules(row, address, end);
      std::erase_if(rows_[row], [](const DisplacedRead &read) { return read.granules == 0; });
    }
  }

private:
  /// Mask of the row's granules of which bytes lie in [address, end).
  static std::uint32_t granules(std::uint64_t row, std::uint64_t address, std::uint64_t end) {
    const std::uint64_t begin = row * kRow;
    const std::uint64_t first = address > begin ? (address - begin) / DisplacedRead::kGranule : 0;
    const std::uint64_t last = (std::min(end, begin + kRow) - 1 - begin) / DisplacedRead::kGranule;
    return std::uint32_t((std::uint64_t(2) << last) - (std::uint64_t(1) << first));
  }

  static constexpr std::size_t kMost = 64; ///< of a row: keeps the search short

  void add_to_row(std::uint64_t row, const DisplacedRead &read) {
    if (rows_.empty())
      rows_.resize(bytes_ / kRow + 1);
    std::vector<DisplacedRead> &reads = rows_[row];
    for (DisplacedRead &known : reads)
      if (is_same_reader(known, read)) {
        known.granules |= read.granules;
        return;
      }
    if (reads.size() == kMost)
      reads.erase(reads.begin());
    reads.push_back(read);
  }

  static bool is_same_reader(const DisplacedRead &a, const DisplacedRead &b) {
    const Access &first = a.access, &second = b.access;
    return first.epoch == second.epoch && first.block == second.block && first.thread == second.thread &&
           first.flags == second.flags && first.bytes == second.bytes && a.lane_bytes == b.lane_bytes;
  }

  std::uint64_t begin_, bytes_;
  std::vector<std::vector<DisplacedRead>> rows_; ///< empty before the first
};

} // namespace ladder::sanitizer
