// A grid: blocks spread over host threads.
#pragma once

#include "machine/cluster.h"

#include <functional>

namespace ladder::machine {

struct LaunchOptions {
  unsigned threads = 0; ///< host threads; 0: as many as there are cores
  /// Called by the launching thread about ten times a second with blocks done and in all; false ends the
  /// launch.
  std::function<bool(std::uint64_t done, std::uint64_t total)> on_tick;
};

/// Checks the launch against the GPU's limits and runs it to its end. Counts are added in block order and do
/// not depend on the number of threads. Throws FaultError (the fault of the lowest block that had one).
Counters run_grid(LaunchContext &launch, const LaunchOptions &options);

} // namespace ladder::machine
