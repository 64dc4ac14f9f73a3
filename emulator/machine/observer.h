// Who watches a launch. The machine knows no more of the sanitizer than this.
#pragma once

#include "machine/fault.h"

#include <memory>

namespace ladder::machine {

class Block;
class Warp;

/// Lives as long as the block that it watches.
class BlockObserver {
public:
  virtual ~BlockObserver() = default;
  /// Called before the threads that waited go on.
  virtual void barrier_completed(int barrier) = 0;
  /// A kernel's malloc gave the warp's lane this memory.
  virtual void heap_allocated(Warp &warp, int lane, std::uint64_t address, std::uint64_t bytes) = 0;
  /// A kernel's free of what malloc gave. True: the memory is kept from being given again.
  virtual bool heap_freed(Warp &warp, int lane, std::uint64_t address) = 0;
};

class LaunchObserver {
public:
  virtual ~LaunchObserver() = default;
  virtual std::unique_ptr<BlockObserver> watch(Block &block) = 0;
  /// Offered the fault that ended a block. True: it is noted, and the other blocks go on.
  virtual bool take_fault(const Fault &fault) = 0;
};

} // namespace ladder::machine
