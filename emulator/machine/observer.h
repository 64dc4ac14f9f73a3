// Observers of a launch: the only link from the machine to the sanitizer.
#pragma once

#include "machine/fault.h"

#include <memory>

namespace ladder::machine {

class Block;
class Warp;

/// Lives as long as the block it observes.
class BlockObserver {
public:
  virtual ~BlockObserver() = default;
  /// Called before the waiting threads resume.
  virtual void barrier_completed(int barrier) = 0;
  /// The lanes `missing`, which the instruction's member mask names, have skipped it.
  virtual void members_skipped(Warp &warp, std::uint32_t instruction, std::uint32_t lanes,
                               std::uint32_t missing) = 0;
  /// A kernel's malloc returned this memory to a lane.
  virtual void heap_allocated(Warp &warp, int lane, std::uint64_t address, std::uint64_t bytes) = 0;
  /// A kernel frees memory from malloc. Returning true keeps the memory from being reused.
  virtual bool heap_freed(Warp &warp, int lane, std::uint64_t address) = 0;
  /// A function of CUDA wrote to this generic address, which a lane passed to it.
  virtual void written(Warp &warp, int lane, std::uint64_t address, std::uint64_t bytes) = 0;
};

class LaunchObserver {
public:
  virtual ~LaunchObserver() = default;
  virtual std::unique_ptr<BlockObserver> watch(Block &block) = 0;
  /// Offers the fault that ended a block. Returning true records it, and the other blocks continue.
  virtual bool take_fault(const Fault &fault) = 0;
};

} // namespace ladder::machine
