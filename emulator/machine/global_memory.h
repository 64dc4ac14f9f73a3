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

/// Whether something of this process is mapped there.
bool is_host_memory(std::uint64_t address);

/// The ranges a kernel may touch. Changed by the host between launches, read by warps during one.
class GlobalMemory {
public:
  /// Overlapping ranges are allowed only when equal (a tensor handed in twice); they are counted.
  /// Throws std::invalid_argument on a partial overlap or an empty or wrapping range.
  void add(MemoryRange range);
  /// Returns false when no range begins there.
  bool remove(std::uint64_t begin);
  /// The same for memory that the program has freed: describe() tells of it.
  bool retire(std::uint64_t begin);
  /// The range that holds [address, address + bytes), nullptr when none does whole. Valid until add or
  /// remove.
  const MemoryRange *find(std::uint64_t address, std::uint64_t bytes) const;
  /// For messages: what the address is, or what lies near it.
  std::string describe(std::uint64_t address) const;
  std::vector<MemoryRange> ranges() const;

private:
  struct Entry {
    MemoryRange range;
    int uses = 1;
  };
  void forget_freed(std::uint64_t begin, std::uint64_t end);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Entry> by_begin_;
  std::map<std::uint64_t, MemoryRange> freed_; ///< by begin, as far as nothing else has come there since
};

} // namespace ladder::machine
