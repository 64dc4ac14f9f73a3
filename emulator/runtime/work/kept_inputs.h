// In a program that is judged: what a kernel takes by pointers to const is read-only during its launch.
#pragma once

#include "machine/global_memory.h"
#include "runtime/work/device.h"

#include <cstdint>
#include <vector>

namespace ladder::runtime {

/// `main` compares a kernel's results with its inputs after the run, so a kernel must not change them. An
/// allocation that the launch also takes by a pointer to what is not const stays writable.
class KeptInputs {
public:
  /// Does nothing unless `device` keeps inputs.
  KeptInputs(Device &device, const LaunchRequest &request);
  ~KeptInputs();
  KeptInputs(const KeptInputs &) = delete;

private:
  machine::GlobalMemory &memory_;
  std::vector<std::uint64_t> begins_; ///< of the ranges that are read-only until the end
};

} // namespace ladder::runtime
