// The allocations that kernels make on the device's heap, live and freed.
#pragma once

#include "sanitizer/findings.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ladder::sanitizer {

class HeapMemory {
public:
  struct Block {
    std::uint64_t bytes = 0;
    std::string kernel;
    Party place; ///< where it was allocated
  };
  struct Fault {
    Kind kind;
    std::string message; ///< what follows on "uses n bytes "
  };

  void allocated(std::uint64_t address, Block block);
  /// False for what is no live allocation, or when so much is kept already that memory must be given back.
  bool keep_freed(std::uint64_t address);
  /// Whether a block that is kept begins there.
  bool is_freed(std::uint64_t address) const;
  /// Whether kernels have allocated from it at all; most never do.
  bool is_used() const { return is_used_.load(std::memory_order_relaxed); }
  /// What is wrong with an access; nothing outside the heap.
  std::optional<Fault> check(std::uint64_t address, std::uint64_t bytes) const;
  std::vector<Block> live() const;

private:
  std::atomic<bool> is_used_{false};
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Block> live_, freed_;
  std::uint64_t begin_ = ~std::uint64_t(0), end_ = 0; ///< of all that was ever allocated
  std::uint64_t kept_bytes_ = 0;
};

} // namespace ladder::sanitizer
