// Global memory: host memory that a program allocated through the runtime or that the binding handed in.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ladder::machine {

struct MemoryRange {
  std::uint64_t begin = 0, end = 0; ///< [begin, end)
  bool writable = true;
  std::string name; ///< "cudaMalloc", a variable's or a tensor's name
};

/// The ranges a kernel may touch. Changed by the host between launches, read by warps during one.
class GlobalMemory {
public:
  /// Overlapping ranges are allowed only when equal (a tensor handed in twice); they are counted.
  /// Throws std::invalid_argument on a partial overlap or an empty or wrapping range.
  void add(MemoryRange range);
  /// Returns false when no range begins there.
  bool remove(std::uint64_t begin);
  /// The range that holds [address, address + bytes), nullptr when none does whole. Valid until add or
  /// remove.
  const MemoryRange *find(std::uint64_t address, std::uint64_t bytes) const;
  /// For messages: the nearest range at or below the address and how far off it is, or "no allocation".
  std::string describe(std::uint64_t address) const;
  std::vector<MemoryRange> ranges() const;

private:
  struct Entry {
    MemoryRange range;
    int uses = 1;
  };
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Entry> by_begin_;
};

} // namespace ladder::machine
