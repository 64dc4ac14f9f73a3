// The heap behind malloc and new in kernels: a piece of global memory that lives as long as the device.
#pragma once

#include "machine/global_memory.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace ladder::machine {

class DeviceHeap {
public:
  static constexpr std::uint64_t kDefaultBytes = 8 << 20; ///< default of cudaLimitMallocHeapSize
  static constexpr std::uint64_t kMostBytes = std::uint64_t(1) << 40;

  /// Takes no memory until the first allocation, which registers the heap with `memory`.
  explicit DeviceHeap(GlobalMemory &memory) : memory_(memory) {}
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap &) = delete;
  DeviceHeap &operator=(const DeviceHeap &) = delete;

  /// Sets the heap's size; returns false after the first allocation, or if `bytes` exceeds kMostBytes.
  bool set_bytes(std::uint64_t bytes);
  /// Returns a 16-byte aligned address, or 0 if no free piece is large enough.
  std::uint64_t allocate(std::uint64_t bytes);
  /// Returns false if no allocation starts there.
  bool release(std::uint64_t address);

private:
  struct Free {
    void operator()(std::uint8_t *memory) const;
  };

  GlobalMemory &memory_;
  std::mutex mutex_; ///< blocks on several host threads allocate
  std::uint64_t bytes_ = kDefaultBytes;
  std::unique_ptr<std::uint8_t, Free> storage_;
  std::uint64_t begin_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_, taken_; ///< address -> bytes
};

} // namespace ladder::machine
