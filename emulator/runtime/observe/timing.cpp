#include "runtime/observe/timing.h"

#include "machine/occupancy.h"
#include "runtime/observe/machine_code.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ladder::runtime {

namespace {

/// Of blocks that follow each other, so many per place are replayed; the others take as long as the last.
constexpr std::uint64_t kMostInARow = 4;

/// Registers are allocated to warps in steps of 256.
std::uint64_t blocks_by_registers(const machine::VirtualGpu &gpu, unsigned registers, std::uint64_t warps) {
  const std::uint64_t per_warp = (std::uint64_t(registers) * 32 + 255) / 256 * 256;
  return per_warp ? gpu.registers_per_multiprocessor / (per_warp * warps) : ~std::uint64_t(0);
}

} // namespace

Timing *Timing::active_ = nullptr;

Timing::Timing(const std::map<std::string, double> &values, std::vector<std::uint64_t> blocks)
    : parameters_(timing::parameters_of(values)), blocks_(std::move(blocks)) {
  active_ = this;
}

Timing::~Timing() { active_ = nullptr; }

std::unique_ptr<Timing::Watch> Timing::watch(machine::LaunchContext &launch) {
  auto watch = std::make_unique<Watch>();
  watch->launch.code = launch.code;
  watch->blocks = next_ < blocks_.size() ? std::max<std::uint64_t>(1, blocks_[next_]) : 1;
  ++next_;
  const timing::MachineKernel kernel = read_machine_kernel(launch.code->cubin, launch.code->kernel);
  const std::uint64_t threads = launch.block.count();
  const std::uint64_t fit = std::min(std::uint64_t(machine::blocks_per_multiprocessor(
                                         *launch.gpu, *launch.code, threads, launch.dynamic_shared_bytes)),
                                     blocks_by_registers(*launch.gpu, kernel.registers, (threads + 31) / 32));
  watch->launch.registers = kernel.registers;
  watch->launch.resident = std::max<std::uint64_t>(1, std::min({fit, watch->blocks, launch.grid.count()}));
  launch.most_clusters = watch->launch.resident;
  watch->facts = std::make_unique<timing::Facts>(*launch.code, kernel);
  if (kernel.instructions.empty())
    watch->launch.unknown = "its machine code, since it was compiled without";
  else if (launch.cluster.count() > 1)
    watch->launch.unknown = "clusters of blocks";
  else if (!watch->facts->unknown().empty())
    watch->launch.unknown = watch->facts->unknown();
  if (!watch->launch.unknown.empty())
    return watch;
  watch->recorder = std::make_unique<timing::Recorder>(launch, *watch->facts, watch->launch.resident);
  launch.debugger = watch->recorder.get();
  return watch;
}

void Timing::ended(Watch &watch) {
  TimedLaunch &launch = watch.launch;
  if (watch.recorder) {
    watch.recorder->finish();
    if (watch.recorder->is_cut()) {
      launch.unknown = "warps that execute so many instructions";
    } else {
      launch.blocks = std::min(watch.blocks, kMostInARow * launch.resident);
      try {
        launch.replayed = timing::replay(*watch.facts, watch.recorder->blocks(), launch.blocks, parameters_);
        launch.first_cycles =
            launch.blocks == launch.resident
                ? launch.replayed.cycles
                : timing::replay(*watch.facts, watch.recorder->blocks(), launch.resident, parameters_).cycles;
      } catch (const std::runtime_error &error) {
        launch.unknown = error.what();
      }
    }
  }
  launches_.push_back(std::move(launch));
}

std::string_view stall_name(timing::Stall stall) { return timing::stall_name(stall); }

} // namespace ladder::runtime
