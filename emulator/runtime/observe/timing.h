// The model of time as driven by the runtime: active for the lifetime of a Timing, which holds what it found
// of each launch.
#pragma once

#include "machine/block.h"
#include "runtime/work/visibility.h"
#include "timing/facts.h"
#include "timing/replay.h"
#include "timing/trace.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ladder::runtime {

/// One launch on the multiprocessor with the most blocks.
struct TimedLaunch {
  std::shared_ptr<const machine::Code> code;
  unsigned registers = 0;
  std::uint64_t resident = 0; ///< blocks at a time
  std::uint64_t blocks = 0;   ///< that were replayed, one after another
  timing::Replayed replayed;
  double first_cycles = 0; ///< of `resident` blocks alone
  std::string unknown;     ///< why there is no time; empty if there is one
};

class LADDER_API Timing {
public:
  /// `values`: the model's parameters. `blocks`: by launch, how many blocks one multiprocessor runs. Throws
  /// std::invalid_argument.
  Timing(const std::map<std::string, double> &values, std::vector<std::uint64_t> blocks);
  ~Timing();
  Timing(const Timing &) = delete;

  static Timing *active() { return active_; }

  /// Sets up the recording of a launch, which then runs only the blocks that are on a multiprocessor at a
  /// time.
  class Watch;
  std::unique_ptr<Watch> watch(machine::LaunchContext &launch);
  /// After the launch.
  void ended(Watch &watch);
  const std::vector<TimedLaunch> &launches() const { return launches_; }

private:
  static Timing *active_;
  timing::Parameters parameters_;
  std::vector<std::uint64_t> blocks_;
  std::size_t next_ = 0;
  std::vector<TimedLaunch> launches_;
};

class Timing::Watch {
public:
  std::uint64_t blocks = 0; ///< of the multiprocessor
  TimedLaunch launch;
  std::unique_ptr<timing::Facts> facts;
  std::unique_ptr<timing::Recorder> recorder;
};

LADDER_API std::string_view stall_name(timing::Stall stall);

} // namespace ladder::runtime
