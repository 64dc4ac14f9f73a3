#include "runtime/work/launch_in_progress.h"

#include "machine/liberties.h"
#include "runtime/observe/checking.h"
#include "runtime/observe/stepper.h"

namespace ladder::runtime {

LaunchInProgress::LaunchInProgress(Device &device, const LaunchRequest &request, std::uint64_t number,
                                   std::size_t pending)
    : request_(request), workspace_(request.cooperative ? &device.memory() : nullptr),
      inputs_(device, request),
      device_work_(request.device_work ? request.device_work(request, pending) : nullptr),
      stepper_(device.stepper()) {
  context_.code = request.code;
  context_.gpu = &device.gpu();
  context_.memory = &device.memory();
  context_.heap = &device.heap();
  context_.grid = request.grid;
  context_.block = request.block;
  context_.cluster = device.cluster_of(request);
  context_.has_explicit_clusters = context_.cluster.count() > 1;
  context_.dynamic_shared_bytes = std::uint32_t(request.dynamic_shared_bytes);
  context_.params = request.params;
  context_.warp_instruction_limit = device.warp_instruction_limit();
  context_.grid_id = number;
  context_.device_runtime = device_work_.get();
  context_.grid_workspace = workspace_.address();
  machine::LaunchOptions options;
  options.threads = device.threads();
  options.on_tick = device.tick();
  if (Checking *const checking = Checking::active()) {
    checker_ = checking->watch(context_);
    checker_->overlaps_previous = request.overlaps_previous;
    options.threads = 1; // reports must be deterministic
  }
  if (stepper_) {
    options.threads = 1; // the order of instructions must be the same each time
    stepper_->begin(context_);
  }
  if (Timing *const timing = Timing::active(); timing && !machine::Liberties::current().skips_kernels) {
    options.threads = 1; // the recorder takes one instruction after the other
    timed_ = timing->watch(context_);
  }
  grid_ = std::make_unique<machine::Grid>(context_, options);
}

void LaunchInProgress::end() {
  if (stepper_)
    stepper_->end();
  if (checker_)
    Checking::active()->worked(*checker_);
  if (timed_)
    Timing::active()->ended(*timed_);
}

std::deque<DeviceWork::Piece> LaunchInProgress::take_device_work() {
  return device_work_ ? device_work_->take() : std::deque<DeviceWork::Piece>();
}

void LaunchInProgress::raise_instruction_limit(std::uint64_t instructions) {
  if (context_.warp_instruction_limit)
    context_.warp_instruction_limit += instructions;
}

} // namespace ladder::runtime
