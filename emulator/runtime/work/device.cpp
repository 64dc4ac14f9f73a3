#include "runtime/work/device.h"

#include "machine/occupancy.h"
#include "runtime/observe/checking.h"
#include "runtime/observe/crash.h"
#include "runtime/work/launch_in_progress.h"
#include "runtime/work/liberties.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

namespace ladder::runtime {

namespace {

constexpr std::uint64_t kMostThreads = 1024;
constexpr std::uint64_t kPortableCluster = 8; ///< cluster size that every GPU with clusters supports

std::uint64_t number_from_environment(const char *name, std::uint64_t otherwise, std::uint64_t most) {
  const char *text = std::getenv(name);
  if (!text || !*text)
    return otherwise;
  std::uint64_t value = 0;
  const char *const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error == std::errc::invalid_argument || rest != end)
    throw std::invalid_argument(std::string(name) + " is '" + text + "', not a number");
  if (error != std::errc{} || value > most)
    throw std::invalid_argument(std::string(name) + " is " + text + ", more than " + std::to_string(most));
  return value;
}

const machine::VirtualGpu &gpu_from_environment() {
  const char *text = std::getenv("LADDER_ARCH");
  const std::string arch = text && *text ? text : "sm_80";
  if (const machine::VirtualGpu *gpu = machine::find_gpu(arch))
    return *gpu;
  std::string known;
  for (const machine::VirtualGpu &gpu : machine::virtual_gpus())
    known += (known.empty() ? "" : ", ") + std::string(gpu.arch);
  throw std::invalid_argument("LADDER_ARCH names the GPU '" + arch + "'; there are " + known);
}

} // namespace

Device &Device::instance() {
  // Never destroyed: atexit handlers and static destructors still use it.
  static Device *device = [] {
    auto *made = new Device;
    std::atexit([] { instance().write_log_file(); });
    return made;
  }();
  return *device;
}

/// Runs after the program's static objects are destroyed: memory that they free is not a leak.
[[gnu::destructor]] void finish_checking() {
  if (Checking *const checking = Checking::active(); checking && checking->watches_host())
    Device::instance().finish_checking();
}

Device::Device()
    : gpu_(&gpu_from_environment()),
      threads_(unsigned(number_from_environment("LADDER_THREADS", 0, kMostThreads))),
      warp_instruction_limit_(number_from_environment("LADDER_WARP_INSTRUCTION_LIMIT",
                                                      kDefaultWarpInstructionLimit,
                                                      std::numeric_limits<std::uint64_t>::max())) {
  if (const char *path = std::getenv("LADDER_LAUNCH_LOG"); path && *path) {
    log_path_ = path;
    std::ofstream{log_path_}; // an empty file shows that the program ended without its exit handlers
    file_log_ = std::make_shared<LaunchLog>(/*merge=*/true);
    before_a_crash([] { instance().write_log_file(); });
  }
  if (number_from_environment("LADDER_CHECK", 0, 1))
    checking_ = std::make_unique<Checking>(/*watches_host=*/true);
}

void Device::add_memory(machine::MemoryRange range) { memory_.add(std::move(range)); }

void Device::remove_memory(std::uint64_t begin) { memory_.remove(begin); }

/// The kernel's own cluster size (__cluster_dims__), else the launch's, else one block.
machine::Dim3 Device::cluster_of(const LaunchRequest &request) const {
  const program::Function &entry = request.code->program->functions[request.code->layout.functions.front()];
  const auto *const own = entry.required_cluster;
  if (own[0] || own[1] || own[2])
    return {std::max(1u, own[0]), std::max(1u, own[1]), std::max(1u, own[2])};
  return request.cluster.value_or(machine::Dim3{});
}

void Device::check(const LaunchRequest &request) const {
  const program::KernelLayout &layout = request.code->layout;
  const program::Function &entry = request.code->program->functions[layout.functions.front()];
  const std::uint64_t threads = request.block.count();
  const std::uint64_t most = std::uint64_t(entry.max_threads[0]) * std::max(1u, entry.max_threads[1]) *
                             std::max(1u, entry.max_threads[2]);
  if (most && threads > most)
    throw LaunchRefusal(LaunchRefusal::Reason::threads, "a block of " + std::to_string(threads) +
                                                            " threads; the kernel is compiled for at most " +
                                                            std::to_string(most) + " (__launch_bounds__)");
  const std::uint64_t cluster = cluster_of(request).count();
  if (cluster > 1) {
    const auto refuse = [](const std::string &why) {
      throw LaunchRefusal(LaunchRefusal::Reason::cluster, why);
    };
    const std::string size = "a cluster of " + std::to_string(cluster) + " blocks";
    if (gpu_->major < 9)
      refuse(size + "; clusters need sm_90 or newer, and the virtual GPU is " + std::string(gpu_->arch));
    if (cluster > machine::kMostBlocksOfCluster)
      refuse(size + "; at most 16 are possible");
    if (cluster > kPortableCluster && !request.allows_large_clusters)
      refuse(size + "; more than 8 need cudaFuncSetAttribute with "
                    "cudaFuncAttributeNonPortableClusterSizeAllowed");
    const machine::Dim3 shape = cluster_of(request);
    if (request.grid.x % shape.x || request.grid.y % shape.y || request.grid.z % shape.z)
      refuse("a grid of " + std::to_string(request.grid.x) + " x " + std::to_string(request.grid.y) + " x " +
             std::to_string(request.grid.z) + " blocks, which is not a multiple of the cluster of " +
             std::to_string(shape.x) + " x " + std::to_string(shape.y) + " x " + std::to_string(shape.z));
  }
  if (request.dynamic_shared_bytes > request.dynamic_shared_limit)
    throw LaunchRefusal(LaunchRefusal::Reason::shared_memory,
                        std::to_string(request.dynamic_shared_bytes) +
                            " bytes of dynamic shared memory and " +
                            std::to_string(layout.static_shared_bytes) + " of static; the kernel may use " +
                            std::to_string(request.dynamic_shared_limit) +
                            " of dynamic (cudaFuncSetAttribute with "
                            "cudaFuncAttributeMaxDynamicSharedMemorySize raises it, up to " +
                            std::to_string(gpu_->shared_bytes_per_block_opt_in) + " bytes in all on " +
                            std::string(gpu_->arch) + ")");
  if (request.cooperative) {
    const std::uint64_t resident = std::uint64_t(machine::blocks_per_multiprocessor(
                                       *gpu_, *request.code, threads, request.dynamic_shared_bytes)) *
                                   std::uint64_t(machine::multiprocessors_of(*gpu_));
    if (request.grid.count() > resident)
      throw LaunchRefusal(LaunchRefusal::Reason::cooperative_grid,
                          "a cooperative launch of " + std::to_string(request.grid.count()) + " blocks; " +
                              std::to_string(resident) + " of them fit on the GPU at once");
  }
}

void Device::report_fault_of(const LaunchRequest &request, const std::function<void()> &body) {
  try {
    body();
  } catch (machine::FaultError &error) {
    error.fault.kernel = demangle(error.fault.kernel.empty() ? request.code->kernel : error.fault.kernel);
    if (!is_refusal(error.fault))
      error.fault.message += after_failed_call();
    if (Checking *const checking = Checking::active())
      checking->note(error.fault);
    report(error.fault);
    throw;
  }
}

bool Device::suspends() const {
  const std::lock_guard lock(state_);
  return logs_.empty() && !stepper_;
}

void Device::launch(const LaunchRequest &request) {
  const std::lock_guard launching(launching_);
  report_fault_of(request, [&] {
    check(request);
    LaunchInProgress launch(*this, request, ++launches_);
    run(launch, machine::Patience::endless_loop);
  });
}

std::shared_ptr<LaunchInProgress> Device::launch_or_suspend(const LaunchRequest &request) {
  const std::lock_guard launching(launching_);
  std::shared_ptr<LaunchInProgress> launch;
  report_fault_of(request, [&] {
    check(request);
    launch = std::make_shared<LaunchInProgress>(*this, request, ++launches_);
    if (run(*launch, machine::Patience::stall))
      launch = nullptr;
  });
  return launch;
}

bool Device::resume(LaunchInProgress &launch) {
  const std::lock_guard launching(launching_);
  bool ended = false;
  report_fault_of(launch.request(), [&] { ended = run(launch, machine::Patience::look); });
  return ended;
}

void Device::give_up(LaunchInProgress &launch) {
  report_fault_of(launch.request(), [&] {
    machine::FaultError error = launch.grid().endless_wait();
    error.fault.message +=
        " If a thread of the host sleeps and then ends the wait, the limit is too low: it is " +
        std::to_string(warp_instruction_limit_) + ", and 0 is no limit.";
    throw error;
  });
  std::abort(); // not reached
}

/// Runs a grid and, after it, what its threads have launched: depth first, so that each grid is complete,
/// with all of its own launches, before what follows it begins.
bool Device::run(LaunchInProgress &launch, machine::Patience patience) {
  if (!run_grid(launch, patience))
    return false;
  for (std::deque<DeviceWork::Piece> left = launch.take_device_work(); !left.empty();) {
    const DeviceWork::Piece piece = std::move(left.front());
    left.pop_front();
    if (const auto *const perform = std::get_if<std::function<void()>>(&piece)) {
      (*perform)();
      continue;
    }
    LaunchInProgress child(*this, std::get<LaunchRequest>(piece), ++launches_, left.size());
    run_grid(child, machine::Patience::endless_loop);
    std::deque<DeviceWork::Piece> own = child.take_device_work();
    left.insert(left.begin(), std::move_iterator(own.begin()), std::move_iterator(own.end()));
  }
  return true;
}

bool Device::run_grid(LaunchInProgress &launch, machine::Patience patience) {
  const auto used = use_memory();
  if (!machine::Liberties::current().skips_kernels && !launch.grid().run(patience))
    return false;
  launch.end();
  const std::lock_guard lock(state_);
  if (!logs_.empty() || file_log_)
    log(launch, launch.grid().take_counters());
  return true;
}

/// The caller holds state_.
void Device::log(const LaunchInProgress &launch, machine::Counters counters) {
  const LaunchRequest &request = launch.request();
  LaunchRecord record;
  record.mangled = request.code->kernel;
  record.kernel = demangle(record.mangled);
  record.grid = request.grid;
  record.block = request.block;
  record.static_shared_bytes = request.code->layout.static_shared_bytes;
  record.dynamic_shared_bytes = request.dynamic_shared_bytes;
  record.arch = gpu_->arch;
  record.code = launch.code();
  record.counters = std::move(counters);
  if (file_log_)
    file_log_->add(record);
  if (!logs_.empty())
    logs_.back()->add(std::move(record));
}

machine::Liberties set_liberties(const machine::Liberties &liberties) {
  return std::exchange(machine::Liberties::current(), liberties);
}

std::optional<machine::Fault> Device::broken() const {
  if (!is_broken_)
    return std::nullopt;
  const std::lock_guard lock(state_);
  return broken_;
}

std::optional<machine::Fault> Device::last_fault() const {
  const std::lock_guard lock(state_);
  return last_fault_;
}

void Device::report(const machine::Fault &fault) {
  {
    const std::lock_guard lock(state_);
    last_fault_ = fault;
    if (!is_refusal(fault)) {
      broken_ = fault;
      is_broken_ = true;
    }
  }
  complain(fault.describe());
  // The program may call abort() next, so write the counters now.
  write_log_file();
}

void Device::repair() {
  forget_last_error();
  const std::lock_guard lock(state_);
  broken_.reset();
  is_broken_ = false;
}

void Device::reset() {
  repair();
  const std::lock_guard lock(state_);
  last_fault_.reset();
}

void Device::complain(const std::string &message) {
  {
    const std::lock_guard lock(state_);
    if (!logs_.empty())
      return;
  }
  tell(message);
}

void Device::tell(const std::string &message) {
  const std::lock_guard lock(state_);
  if (std::find(said_.begin(), said_.end(), message) != said_.end())
    return;
  said_.push_back(message);
  std::fflush(stdout);
  std::fprintf(stderr, "ladder: %s\n", message.c_str());
}

void Device::note_uncounted(const std::string &function) {
  const std::lock_guard lock(state_);
  ++uncounted_[function];
}

void Device::open_log(std::shared_ptr<LaunchLog> log) {
  const std::lock_guard lock(state_);
  logs_.push_back(std::move(log));
}

void Device::close_log(const std::shared_ptr<LaunchLog> &log) {
  const std::lock_guard lock(state_);
  std::erase(logs_, log);
}

void Device::finish_checking() {
  checking_->finish();
  write_log_file();
}

void Device::write_log_file() {
  if (!file_log_)
    return;
  const std::lock_guard lock(state_);
  // Write all or nothing: the process may be dying.
  const std::string half_written = log_path_ + ".part";
  {
    std::ofstream file(half_written, std::ios::trunc);
    file << to_json(*file_log_, std::string(gpu_->arch), last_fault_, uncounted_,
                    checking_ ? checking_->to_json() : "[]", main_returned_);
    if (!file.flush())
      return;
  }
  std::rename(half_written.c_str(), log_path_.c_str());
}

} // namespace ladder::runtime

extern "C" LADDER_API void ladder_main_begins() { ladder::runtime::Device::instance().main_begins(); }

extern "C" LADDER_API void ladder_main_returned(int code) {
  ladder::runtime::Device::instance().main_returned(code);
}
