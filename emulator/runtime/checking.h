// The sanitizer as the runtime drives it: on for a stretch of time, with what it has found.
#pragma once

#include "machine/block.h"
#include "machine/fault.h"
#include "runtime/visibility.h"
#include "sanitizer/findings.h"
#include "sanitizer/initialised.h"
#include "sanitizer/launch_checker.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace ladder::runtime {

class LADDER_API Checking {
public:
  Checking();
  ~Checking();
  Checking(const Checking &) = delete;

  /// The one that is on, nullptr when launches are not checked.
  static Checking *active() { return active_.load(std::memory_order_acquire); }

  /// The checks of a launch. `launch.code` and `launch.observer` are set; the result lives as long as it
  /// runs.
  std::unique_ptr<sanitizer::LaunchChecker> watch(machine::LaunchContext &launch);
  /// A launch that was refused, or a call that was wrong.
  void note(const machine::Fault &fault);

  sanitizer::Findings &findings() { return findings_; }
  sanitizer::InitialisedMemory &initialised() { return initialised_; }
  /// Memory that the launches are to write, all of it.
  void track_output(std::uint64_t address, std::uint64_t bytes, const std::string &name);
  /// Looks at the outputs. Gives all findings, as a JSON list of objects.
  std::string finish();

private:
  static std::atomic<Checking *> active_;

  struct Kernel {
    std::shared_ptr<const machine::Code> code; ///< keeps its address from being another's
    std::shared_ptr<const sanitizer::CheckedCode> checked;
  };
  struct Output {
    std::uint64_t address, bytes;
    std::string name;
  };
  std::map<const machine::Code *, Kernel> kernels_;
  std::vector<Output> outputs_;
  sanitizer::Findings findings_;
  sanitizer::InitialisedMemory initialised_;
};

} // namespace ladder::runtime
