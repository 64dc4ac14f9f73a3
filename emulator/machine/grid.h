// Runs a grid: blocks spread over host threads.
#pragma once

#include "machine/cluster.h"

#include <functional>

namespace ladder::machine {

struct LaunchOptions {
  unsigned threads = 0; ///< host threads; 0: one per core
  /// Called by the launching thread about ten times a second with the number of finished and of all blocks;
  /// returning false stops the launch.
  std::function<bool(std::uint64_t done, std::uint64_t total)> on_tick;
};

/// Checks the launch against the GPU's limits and runs it to the end. Counters are merged in block order and
/// do not depend on the number of threads. Throws FaultError (of the lowest block that faulted).
Counters run_grid(LaunchContext &launch, const LaunchOptions &options);

} // namespace ladder::machine
