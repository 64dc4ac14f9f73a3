// Allocations that kernels make on the device heap, live and freed.
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
    std::string message; ///< continues "accesses n bytes of global memory "
  };

  void allocated(std::uint64_t address, Block block);
  /// Keeps a freed block. Returns false if it is not a live allocation, or if the kept blocks take so much
  /// memory that it must be reused.
  bool keep_freed(std::uint64_t address);
  /// True if a kept block starts there.
  bool is_freed(std::uint64_t address) const;
  /// True if kernels have ever allocated from it; most never do.
  bool is_used() const { return is_used_.load(std::memory_order_relaxed); }
  /// What is wrong with an access; nullopt outside the heap.
  std::optional<Fault> check(std::uint64_t address, std::uint64_t bytes) const;
  std::vector<Block> live() const;

private:
  std::atomic<bool> is_used_{false};
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Block> live_, freed_;
  std::uint64_t begin_ = ~std::uint64_t(0), end_ = 0; ///< range of all allocations ever made
  std::uint64_t kept_bytes_ = 0;
};

} // namespace ladder::sanitizer
