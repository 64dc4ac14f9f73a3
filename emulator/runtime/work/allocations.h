// Memory that the program allocated or registered.
#pragma once

#include "machine/global_memory.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace ladder::runtime {

enum class MemoryKind { device, managed, host, registered };

struct Allocation {
  std::uint64_t begin = 0, bytes = 0;
  MemoryKind kind = MemoryKind::device;
  unsigned flags = 0;
  bool is_guarded = false; ///< HostGuard's
};

/// All of it is host memory, initially zeroed. The device's GlobalMemory lists what kernels may access.
class Allocations {
public:
  static Allocations &instance();

  /// Throws CudaError(cudaErrorMemoryAllocation). Returns a null pointer for 0 bytes.
  void *allocate(std::uint64_t bytes, MemoryKind kind, const char *name, unsigned flags = 0);
  /// Frees the allocation that starts at `pointer`; returns false if there is none of these kinds.
  bool free(void *pointer, std::initializer_list<MemoryKind> kinds);
  /// Returns false if it overlaps a known range.
  bool add_registered(void *pointer, std::uint64_t bytes, unsigned flags);
  bool remove_registered(void *pointer);
  /// Zeroes memory by returning its pages to the system, so that a large workspace only occupies what is
  /// used. Returns false without any effect unless the memory belongs to a large enough allocation.
  bool make_fresh(void *pointer, std::uint64_t bytes);
  /// The allocation that contains the address.
  std::optional<Allocation> find(const void *pointer) const;
  /// Bytes of device and managed memory in use.
  std::uint64_t used() const;
  /// cudaDeviceReset: frees everything the program has not freed.
  void free_all();

private:
  void release(const Allocation &allocation);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Allocation> by_begin_;
  std::uint64_t used_ = 0;
};

} // namespace ladder::runtime
