// Global memory: host memory that the program allocated through the runtime or that the caller registered.
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
  std::string name; ///< "cudaMalloc", or the name of a variable or tensor
};

/// True if this process has a mapping there.
bool is_host_memory(std::uint64_t address);

/// The ranges that a kernel may touch. The host changes them between launches; warps read them during one.
class GlobalMemory {
public:
  /// Ranges may overlap only if they are equal (a tensor registered twice); equal ranges are counted. Throws
  /// std::invalid_argument for a partial overlap and for an empty or wrapping range.
  void add(MemoryRange range);
  /// Returns false if no range starts there.
  bool remove(std::uint64_t begin);
  /// The same for memory that the program has freed; describe() mentions it.
  bool retire(std::uint64_t begin);
  /// Whether kernels may write the range that starts there, if one does.
  void set_writable(std::uint64_t begin, bool writable);
  /// The range that contains all of [address, address + bytes), else nullptr. Valid until add or remove.
  const MemoryRange *find(std::uint64_t address, std::uint64_t bytes) const;
  /// For messages: what the address is, or what is near it.
  std::string describe(std::uint64_t address) const;
  /// False for an address that has nothing to do with any allocation, nor with a null pointer.
  bool is_near(std::uint64_t address) const { return !what_is_near(address).empty(); }
  std::vector<MemoryRange> ranges() const;

private:
  struct Entry {
    MemoryRange range;
    int uses = 1;
  };
  std::string what_is_near(std::uint64_t address) const; ///< empty: nothing
  void forget_freed(std::uint64_t begin, std::uint64_t end);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Entry> by_begin_;
  std::map<std::uint64_t, MemoryRange> freed_; ///< by begin, until the memory is reused
};

} // namespace ladder::machine
