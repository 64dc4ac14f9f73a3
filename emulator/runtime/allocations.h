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
};

/// All of it is host memory that starts zeroed. What a kernel may touch is entered into the device's
/// GlobalMemory.
class Allocations {
public:
  static Allocations &instance();

  /// Throws CudaError(cudaErrorMemoryAllocation). 0 bytes give a null pointer.
  void *allocate(std::uint64_t bytes, MemoryKind kind, const char *name, unsigned flags = 0);
  /// Frees what begins at the address and is of one of the kinds; false when there is no such thing.
  bool free(void *pointer, std::initializer_list<MemoryKind> kinds);
  /// False when it overlaps what is known already.
  bool add_registered(void *pointer, std::uint64_t bytes, unsigned flags);
  bool remove_registered(void *pointer);
  /// The allocation that holds the address.
  std::optional<Allocation> find(const void *pointer) const;
  /// Bytes of device and managed memory in use.
  std::uint64_t used() const;
  /// cudaDeviceReset: frees what the program has not.
  void free_all();

private:
  void release(const Allocation &allocation);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Allocation> by_begin_;
  std::uint64_t used_ = 0;
};

} // namespace ladder::runtime
