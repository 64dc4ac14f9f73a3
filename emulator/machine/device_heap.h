// The heap that kernels allocate from with malloc and new: a piece of global memory that lives as long as the
// device.
#pragma once

#include "machine/global_memory.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace ladder::machine {

class DeviceHeap {
public:
  static constexpr std::uint64_t kDefaultBytes = 8 << 20; ///< cudaLimitMallocHeapSize, unless it is set
  static constexpr std::uint64_t kMostBytes = std::uint64_t(1) << 40;

  /// Takes no memory before the first allocation, which registers the heap with `memory`.
  explicit DeviceHeap(GlobalMemory &memory) : memory_(memory) {}
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap &) = delete;
  DeviceHeap &operator=(const DeviceHeap &) = delete;

  /// The size from the first allocation on; false when that has been made, or for more than kMostBytes.
  bool set_bytes(std::uint64_t bytes);
  /// An address that is a multiple of 16, or 0 when nothing so large is free.
  std::uint64_t allocate(std::uint64_t bytes);
  /// False when nothing that is allocated begins there.
  bool release(std::uint64_t address);

private:
  struct Free {
    void operator()(std::uint8_t *memory) const;
  };

  GlobalMemory &memory_;
  std::mutex mutex_; ///< blocks of several host threads allocate
  std::uint64_t bytes_ = kDefaultBytes;
  std::unique_ptr<std::uint8_t, Free> storage_;
  std::uint64_t begin_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_, taken_; ///< address -> bytes
};

} // namespace ladder::machine
