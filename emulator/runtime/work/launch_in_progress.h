// A launch from its beginning to its end, while it runs or is suspended.
#pragma once

#include "machine/grid.h"
#include "runtime/observe/timing.h"
#include "runtime/work/device.h"
#include "runtime/work/device_work.h"
#include "runtime/work/kept_inputs.h"
#include "sanitizer/launch_checker.h"

#include <cstdint>
#include <memory>

namespace ladder::runtime {

/// The barrier memory of cooperative groups' grid.sync() (cooperative_groups/details/driver_abi.h); none if
/// `memory` is nullptr.
class GridWorkspace {
public:
  explicit GridWorkspace(machine::GlobalMemory *memory) : memory_(memory) {
    if (memory_)
      memory_->add(
          {.begin = address(), .end = address() + sizeof words_, .writable = true, .name = "grid workspace"});
  }
  ~GridWorkspace() {
    if (memory_)
      memory_->remove(address());
  }
  GridWorkspace(const GridWorkspace &) = delete;
  std::uint64_t address() const { return memory_ ? reinterpret_cast<std::uint64_t>(words_) : 0; }

private:
  machine::GlobalMemory *memory_;
  alignas(64) std::uint32_t words_[16] = {};
};

class LaunchInProgress {
public:
  /// `number`: of the launch, from 1. `pending`: launches by kernels that have not begun. Throws FaultError.
  LaunchInProgress(Device &device, const LaunchRequest &request, std::uint64_t number,
                   std::size_t pending = 0);
  /// After the last block: tells a debugger and the sanitizer.
  void end();

  const LaunchRequest &request() const { return request_; }
  machine::Grid &grid() { return *grid_; }
  /// After the end: what the grid's threads have launched.
  std::deque<DeviceWork::Piece> take_device_work();
  /// The code as it ran: with the sanitizer's checks.
  const std::shared_ptr<const machine::Code> &code() const { return context_.code; }
  /// Changes when a thread does anything but poll.
  std::uint64_t progress() const { return context_.progress.load(); }
  /// Raises the limit of instructions per warp by this number.
  void raise_instruction_limit(std::uint64_t instructions);

private:
  const LaunchRequest request_;
  const GridWorkspace workspace_;
  const KeptInputs inputs_;
  const std::unique_ptr<DeviceWork> device_work_;
  Stepper *const stepper_;
  machine::LaunchContext context_;
  std::unique_ptr<sanitizer::LaunchChecker> checker_;
  std::unique_ptr<Timing::Watch> timed_;
  std::unique_ptr<machine::Grid> grid_; ///< uses all of the above
};

} // namespace ladder::runtime
