// The virtual device of the process: its GPU, memory, launches and errors.
//
// A launch runs when it is called; one that waits for the host or for other work can be suspended. There is
// one device.
#pragma once

#include "machine/block.h"
#include "machine/fault.h"
#include "machine/global_memory.h"
#include "machine/gpu.h"
#include "machine/grid.h"
#include "runtime/observe/launch_log.h"
#include "runtime/work/visibility.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

namespace ladder::runtime {

inline constexpr std::uint64_t kDefaultWarpInstructionLimit = std::uint64_t(1) << 28;

class DeviceWork;

struct LaunchRequest {
  std::shared_ptr<const machine::Code> code;
  machine::Dim3 grid, block;
  std::optional<machine::Dim3> cluster; ///< from the launch; a kernel's own clusters need none
  bool allows_large_clusters = false;   ///< cudaFuncAttributeNonPortableClusterSizeAllowed
  std::uint64_t dynamic_shared_bytes = 0;
  /// What the kernel may use: 48 KiB minus its static part, or what it opted in to.
  std::uint64_t dynamic_shared_limit = 0;
  std::vector<std::uint8_t> params;
  bool cooperative = false;
  bool overlaps_previous = false; ///< it may begin before the previous launch of its stream has ended
  int level = 1;                  ///< 1: launched by the host, 2: by a kernel that the host launched, ...
  /// Makes what keeps the work of the launch's threads, beside `pending` launches that have not begun;
  /// without it they cannot launch kernels.
  std::function<std::unique_ptr<DeviceWork>(const LaunchRequest &parent, std::size_t pending)> device_work;
};

/// A launch that the device refuses before anything runs.
class LaunchRefusal : public machine::FaultError {
public:
  enum class Reason { threads, shared_memory, cooperative_grid, cluster };
  LaunchRefusal(Reason reason, const std::string &message)
      : FaultError(machine::FaultKind::launch, message), reason(reason) {}
  Reason reason;
};

/// Clears the error that cudaGetLastError would return on this host thread.
void forget_last_error();

/// The first call of this host thread that failed since the program last asked for errors, as the end of the
/// message of a fault that it may have caused; empty if there is none.
std::string after_failed_call();

class Checking;
class LaunchInProgress;
class Stepper;

class LADDER_API Device {
public:
  /// The device of the process, created on first use from LADDER_ARCH, LADDER_THREADS and
  /// LADDER_WARP_INSTRUCTION_LIMIT. Throws std::invalid_argument if one of them is invalid.
  static Device &instance();

  const machine::VirtualGpu &gpu() const { return *gpu_; }
  /// Modules reload for another GPU; memory stays.
  void set_gpu(const machine::VirtualGpu &gpu) { gpu_ = &gpu; }
  unsigned threads() const { return threads_; }
  void set_threads(unsigned threads) { threads_ = threads; }
  std::uint64_t warp_instruction_limit() const { return warp_instruction_limit_; }
  void set_warp_instruction_limit(std::uint64_t limit) { warp_instruction_limit_ = limit; }
  machine::GlobalMemory &memory() { return memory_; }
  machine::DeviceHeap &heap() { return heap_; }
  /// Host memory that kernels may use until it is removed. Throws std::invalid_argument if it partly overlaps
  /// other memory.
  void add_memory(machine::MemoryRange range);
  void remove_memory(std::uint64_t begin);

  /// How many launches by kernels may wait for their beginning.
  std::size_t pending_launch_limit() const { return pending_launch_limit_; }
  void set_pending_launch_limit(std::size_t launches) { pending_launch_limit_ = launches; }

  /// Held while work uses memory that the program could free concurrently. Freeing holds `unused_memory`, so
  /// it waits for running work, as on a GPU.
  std::shared_lock<std::shared_mutex> use_memory() { return std::shared_lock(memory_in_use_); }
  std::unique_lock<std::shared_mutex> unused_memory() { return std::unique_lock(memory_in_use_); }

  /// Runs a kernel to its end and logs it. Throws FaultError; any fault but a refusal (see is_refusal) breaks
  /// the device.
  void launch(const LaunchRequest &request);

  /// Whether launches can be suspended: not those of a session or of a debugger, which read the results next.
  bool suspends() const;
  /// The same as launch, but returns early if the kernel waits for something outside it.
  std::shared_ptr<LaunchInProgress> launch_or_suspend(const LaunchRequest &request);
  /// Lets a suspended kernel look again. Returns whether it has ended.
  bool resume(LaunchInProgress &launch);
  /// Breaks the device: nothing can end this kernel.
  [[noreturn]] void give_up(LaunchInProgress &launch);

  /// A launch that is refused before anything runs is harmless; any other fault breaks the device until a
  /// reset.
  static bool is_refusal(const machine::Fault &fault) {
    return fault.kind == machine::FaultKind::launch || fault.kind == machine::FaultKind::unsupported;
  }
  /// The fault that broke the device.
  std::optional<machine::Fault> broken() const;
  /// The last fault of any kind, refusals included.
  std::optional<machine::Fault> last_fault() const;
  /// Keeps the fault for last_fault and prints it, unless a session is open.
  void report(const machine::Fault &fault);
  /// Repairs a broken device and clears CUDA's last error; memory, modules and last_fault stay.
  void repair();
  /// As repair, and forgets the last fault.
  void reset();

  /// Prints a message to the user, once per distinct text.
  void tell(const std::string &message);
  /// The same, unless a session is open.
  void complain(const std::string &message);

  /// Counts a call of a library, whose work is the host's and has no counters.
  void note_uncounted(const std::string &function);

  /// Launches go to the most recently opened log. Open logs silence `report`, since their owner shows faults.
  void open_log(std::shared_ptr<LaunchLog> log);
  void close_log(const std::shared_ptr<LaunchLog> &log);
  /// Called about ten times a second during a launch, on the launching thread; returning false ends the
  /// launch.
  void set_tick(std::function<bool(std::uint64_t done, std::uint64_t total)> tick) {
    tick_ = std::move(tick);
  }

  /// Launches are stepped through by this one; nullptr: by none.
  void set_stepper(Stepper *stepper) { stepper_ = stepper; }
  Stepper *stepper() const { return stepper_; }
  const std::function<bool(std::uint64_t, std::uint64_t)> &tick() const { return tick_; }
  /// The blocks per cluster of a launch.
  machine::Dim3 cluster_of(const LaunchRequest &request) const;
  /// Throws FaultError, of kind launch, for a launch that the GPU does not allow.
  void check(const LaunchRequest &request) const;

  /// Writes the log with all findings at the end of a checked process.
  void finish_checking();
  /// The program's main is about to run: it will compare results, so kernels must not change their inputs.
  void main_begins() { keeps_inputs_ = true; }
  bool keeps_inputs() const { return keeps_inputs_; }
  /// The program's main has returned.
  void main_returned(int code) { main_returned_ = code; }

private:
  Device();
  Device(const Device &) = delete;
  void write_log_file();
  bool run(LaunchInProgress &launch, machine::Patience patience);
  bool run_grid(LaunchInProgress &launch, machine::Patience patience);
  void log(const LaunchInProgress &launch, machine::Counters counters);
  void report_fault_of(const LaunchRequest &request, const std::function<void()> &body);

  const machine::VirtualGpu *gpu_ = nullptr;
  unsigned threads_ = 0;
  std::uint64_t warp_instruction_limit_ = kDefaultWarpInstructionLimit;
  machine::GlobalMemory memory_;
  machine::DeviceHeap heap_{memory_};
  std::mutex launching_; ///< one kernel at a time
  std::shared_mutex memory_in_use_;
  mutable std::mutex state_;
  std::atomic<bool> is_broken_{false};
  std::optional<machine::Fault> broken_, last_fault_;
  std::vector<std::string> said_;
  std::map<std::string, std::uint64_t> uncounted_; ///< library calls by function
  std::vector<std::shared_ptr<LaunchLog>> logs_;
  std::function<bool(std::uint64_t, std::uint64_t)> tick_;
  Stepper *stepper_ = nullptr;
  std::uint64_t launches_ = 0;
  std::atomic<bool> keeps_inputs_{false};
  std::optional<int> main_returned_;
  std::string log_path_;                ///< LADDER_LAUNCH_LOG
  std::shared_ptr<LaunchLog> file_log_; ///< its contents
  std::unique_ptr<Checking> checking_;  ///< LADDER_CHECK
  std::atomic<std::size_t> pending_launch_limit_{2048};
};

} // namespace ladder::runtime
