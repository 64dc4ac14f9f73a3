#include "runtime/work/pending_work.h"

#include "runtime/work/allocations.h"
#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <utility>

namespace ladder::runtime {

namespace {

using namespace std::chrono_literals;

/// Pauses between polls without progress, while the host waits and while it computes.
constexpr std::chrono::microseconds kPause = 50us, kLongPause = 1ms;
/// After this many pauses without progress they become long, and the program may end.
constexpr std::uint64_t kManyPauses = 100;
/// A wait of the host is a deadlock after one pause without progress for this many instructions of a warp's
/// limit, 2,048 by default. Pauses and polls are counted, and no time is measured: on a busy machine, other
/// threads of the host, and kernels that count their own polls, get as far as on an idle one.
constexpr std::uint64_t kInstructionsPerPause = 1 << 17;
/// While the host waits, suspended kernels poll between two pauses until their warps have had this many
/// slices.
constexpr std::uint64_t kSlicesBetweenPauses = 256;
/// After this time without progress the kernel is reported, since the host may poll, too.
constexpr auto kLong = 10s;

std::uint64_t warps_of(const LaunchRequest &request) {
  return request.grid.count() * ((request.block.count() + 31) / 32);
}

/// A script reads results without waiting for them: tensors of the emulated GPU are memory of the process.
bool runs_in_python() {
  static const bool runs = dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr;
  return runs;
}

/// Whether a copy's host memory is not pinned: the program may reuse it when the call returns.
bool uses_pageable_memory(const Work &work) {
  const auto *const copy = std::get_if<CopyWork>(&work);
  const auto is_pageable = [](const void *pointer) {
    return pointer && !Allocations::instance().find(pointer) &&
           !Device::instance().memory().find(reinterpret_cast<std::uint64_t>(pointer), 1);
  };
  return copy && (is_pageable(copy->what.srcPtr.ptr) || is_pageable(copy->what.dstPtr.ptr));
}

/// The program may destroy an event before its turn.
bool uses_destroyed_event(const Work &work) {
  try {
    if (const auto *const record = std::get_if<RecordWork>(&work))
      require_event(record->event);
    if (const auto *const wait = std::get_if<WaitWork>(&work))
      require_event(wait->event);
    return false;
  } catch (const CudaError &) {
    return true;
  }
}

} // namespace

PendingWork &PendingWork::instance() {
  // Never destroyed: the thread may still use it.
  static PendingWork *const pending = new PendingWork;
  return *pending;
}

bool PendingWork::are_done(const Tasks &tasks) {
  return std::ranges::all_of(tasks, [](const auto &task) { return task->is_done; });
}

PendingWork::Tasks PendingWork::earlier(StreamId stream, bool is_blocking) const {
  Tasks tasks;
  for (const auto &task : tasks_)
    if (task->stream == stream || (stream == kLegacyStream && task->is_blocking) ||
        (task->stream == kLegacyStream && is_blocking))
      tasks.push_back(task);
  return tasks;
}

/// The last record of the event, if it is pending.
PendingWork::Tasks PendingWork::recorded(cudaEvent_t event) const {
  for (auto task = tasks_.rbegin(); task != tasks_.rend(); ++task)
    if (const auto *const record = std::get_if<RecordWork>(&(*task)->work); record && record->event == event)
      return {*task};
  return {};
}

void PendingWork::issue(const Work &work, cudaStream_t stream) {
  const StreamId id = stream_id(stream);
  auto task = std::make_shared<Task>(Task{id, is_blocking(stream), work, nullptr, {}});
  if (!is_empty()) {
    const std::lock_guard lock(mutex_);
    task->after = earlier(id, task->is_blocking);
    if (const auto *const wait = std::get_if<WaitWork>(&work))
      for (auto &record : recorded(wait->event))
        task->after.push_back(std::move(record));
    if (!task->after.empty() && !uses_pageable_memory(work))
      return add(std::move(task));
  }
  if (!task->after.empty())
    wait_for(stream);
  const auto *const kernel = std::get_if<KernelWork>(&work);
  if (!kernel || has_ended_ || runs_in_python() || !Device::instance().suspends())
    return perform(work, id);
  task->launch = launch_or_suspend(*kernel, id);
  const std::lock_guard lock(mutex_);
  if (task->launch)
    add(std::move(task));
}

void PendingWork::add(std::shared_ptr<Task> task) {
  tasks_.push_back(std::move(task));
  count_ = tasks_.size();
  pauses_ = 0;
  moved_ = std::chrono::steady_clock::now();
  if (!thread_.joinable() && !has_ended_) {
    thread_ = std::thread([this] { work(); });
    std::atexit([] { instance().finish(); });
  }
  changed_.notify_all();
}

bool PendingWork::is_pending(cudaStream_t stream) {
  if (is_empty())
    return false;
  const StreamId id = stream_id(stream);
  const bool blocks = is_blocking(stream);
  const std::lock_guard lock(mutex_);
  return !earlier(id, blocks).empty();
}

bool PendingWork::is_pending(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  return !recorded(event).empty();
}

void PendingWork::wait_for(cudaStream_t stream) {
  const StreamId id = stream_id(stream);
  const bool blocks = is_blocking(stream);
  std::unique_lock lock(mutex_);
  wait_for(lock, earlier(id, blocks));
}

void PendingWork::wait_for(cudaEvent_t event) {
  std::unique_lock lock(mutex_);
  wait_for(lock, recorded(event));
}

void PendingWork::wait_for_all() {
  std::unique_lock lock(mutex_);
  wait_for(lock, {tasks_.begin(), tasks_.end()});
}

void PendingWork::wait_for(std::unique_lock<std::mutex> &lock, const Tasks &tasks) {
  // A host function, which this thread runs, may not wait for what follows it.
  require(tasks.empty() || std::this_thread::get_id() != thread_.get_id(), cudaErrorNotPermitted,
          "a function of cudaLaunchHostFunc that calls CUDA");
  if (!tasks.empty()) {
    ++waiting_;
    pauses_ = 0;
    moved_ = std::chrono::steady_clock::now();
    changed_.notify_all();
    completed_.wait(lock, [&] { return are_done(tasks); });
    --waiting_;
  }
  const cudaError_t error = std::exchange(error_, cudaSuccess);
  lock.unlock();
  if (const auto fault = Device::instance().broken())
    throw CudaError(error_of(*fault));
  if (error != cudaSuccess)
    throw CudaError(error);
}

void PendingWork::work() {
  for (std::unique_lock lock(mutex_); !has_ended_;) {
    changed_.wait(lock, [&] { return !tasks_.empty() || has_ended_.load(); });
    bool moved = look(lock);
    for (std::uint64_t left = looks_between_pauses(); !moved && left > 1; --left)
      moved = look(lock);
    if (moved) {
      pauses_ = 0;
      moved_ = std::chrono::steady_clock::now();
      continue;
    }
    if (is_deadlocked())
      give_up();
    else if (std::chrono::steady_clock::now() - moved_ > kLong)
      tell_of_waiting("has waited for a long time");
    changed_.wait_for(lock, waiting_ && pauses_ < kManyPauses ? kPause : kLongPause,
                      [&] { return has_ended_.load(); });
    pauses_ += waiting_ > 0;
  }
}

/// One look lets each warp poll once. A kernel may count its own polls, by a clock: while the host waits, it
/// polls much.
std::uint64_t PendingWork::looks_between_pauses() const {
  std::uint64_t warps = 0;
  for (const auto &task : tasks_)
    if (task->launch)
      warps += warps_of(task->launch->request());
  return waiting_ ? std::max<std::uint64_t>(1, kSlicesBetweenPauses / std::max<std::uint64_t>(1, warps)) : 1;
}

bool PendingWork::is_deadlocked() const {
  const std::uint64_t limit = Device::instance().warp_instruction_limit();
  return waiting_ && limit && pauses_ > std::max(kManyPauses, limit / kInstructionsPerPause);
}

/// Performs what can be performed; returns whether anything has changed.
bool PendingWork::look(std::unique_lock<std::mutex> &lock) {
  bool moved = false;
  for (const auto &task : Tasks(tasks_.begin(), tasks_.end())) {
    if (task->is_done || !are_done(task->after))
      continue;
    lock.unlock();
    const std::uint64_t before = task->launch ? task->launch->progress() : 0;
    bool done = false;
    const cudaError_t error = query([&] { done = step(*task); });
    moved = moved || done || error != cudaSuccess || (task->launch && task->launch->progress() != before);
    lock.lock();
    if (error != cudaSuccess)
      error_ = error;
    if (done || error != cudaSuccess)
      complete(task);
  }
  return moved;
}

/// Returns whether the task is complete.
bool PendingWork::step(Task &task) {
  if (const auto fault = Device::instance().broken())
    throw CudaError(error_of(*fault));
  if (task.launch) {
    const OnStream on_stream(task.stream);
    const std::uint64_t before = task.launch->progress();
    const bool ended = Device::instance().resume(*task.launch);
    // A wait for the host may take any number of looks.
    if (task.launch->progress() == before)
      task.launch->raise_instruction_limit(2 * machine::kPollSlice);
    return ended;
  }
  if (const auto *const kernel = std::get_if<KernelWork>(&task.work))
    task.launch = launch_or_suspend(*kernel, task.stream);
  else if (!uses_destroyed_event(task.work))
    perform(task.work, task.stream);
  return !task.launch;
}

void PendingWork::complete(const std::shared_ptr<Task> &task) {
  task->is_done = true;
  task->after.clear(); // else the whole past stays in memory
  tasks_.remove(task);
  count_ = tasks_.size();
  completed_.notify_all();
}

void PendingWork::tell_of_waiting(const char *when) {
  moved_ = std::chrono::steady_clock::now();
  for (const auto &task : tasks_)
    if (task->launch)
      Device::instance().complain(demangle(task->launch->request().code->kernel) + " " + when + ": " +
                                  task->launch->grid().endless_wait().fault.message);
}

/// The host waits for kernels that wait for nothing that can still happen.
void PendingWork::give_up() {
  const auto stuck = std::ranges::find_if(tasks_, [](const auto &task) { return task->launch != nullptr; });
  error_ = query([&] { Device::instance().give_up(*(*stuck)->launch); });
  while (!tasks_.empty())
    complete(tasks_.front());
}

/// At the end of the program, whose kernels may still be waiting.
void PendingWork::finish() {
  std::unique_lock lock(mutex_);
  if (std::this_thread::get_id() == thread_.get_id())
    return;
  pauses_ = 0;
  ++waiting_;
  while (!tasks_.empty() && pauses_ < kManyPauses)
    completed_.wait_for(lock, kLongPause);
  --waiting_;
  has_ended_ = true;
  changed_.notify_all();
  lock.unlock();
  thread_.join();
  tell_of_waiting("had not ended when the program ended");
  lock.lock();
  while (!tasks_.empty())
    complete(tasks_.front());
}

} // namespace ladder::runtime
