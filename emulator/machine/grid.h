// Runs a grid: blocks spread over host threads.
#pragma once

#include "machine/cluster.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace ladder::machine {

struct LaunchOptions {
  unsigned threads = 0; ///< host threads; 0: one per core
  /// Called by the launching thread about ten times a second with the number of finished and of all blocks;
  /// returning false stops the launch.
  std::function<bool(std::uint64_t done, std::uint64_t total)> on_tick;
};

/// How long all blocks of a grid may only poll, without anything that changes, before a run of it ends.
enum class Patience {
  endless_loop, ///< until it must be a deadlock, which is a fault
  stall,        ///< until only something outside the grid can release them
  look,         ///< until each block has polled again
};

/// Throws FaultError, of kind launch, for a grid or block that no GPU allows.
void check_size(const Code &code, const Dim3 &grid, const Dim3 &block);

class GridRun;

/// A grid in progress. It must not outlive its launch.
class Grid {
public:
  /// Checks the launch against the GPU's limits. Throws FaultError.
  Grid(LaunchContext &launch, const LaunchOptions &options);
  ~Grid();
  Grid(const Grid &) = delete;

  /// Starts or continues the blocks. Returns whether all have exited; if not, all that remain only poll.
  /// Throws FaultError (of the lowest block that faulted).
  bool run(Patience patience);
  /// The fault of a grid that polls for a change that nothing can make.
  FaultError endless_wait() const;
  /// After the end: merged in block order, and independent of the number of threads.
  Counters take_counters();

private:
  std::unique_ptr<GridRun> run_;
};

} // namespace ladder::machine
