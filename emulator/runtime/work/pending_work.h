// Work that was not complete when its call returned: kernels that wait for the host or for work of other
// streams, and the work that follows them.
//
// All other work is performed by its call. A kernel all of whose threads only poll is suspended; a
// background thread lets it poll again, and performs the work that follows it.
#pragma once

#include "runtime/work/cuda_api.h"
#include "runtime/work/launch_in_progress.h"
#include "runtime/work/stream_work.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace ladder::runtime {

class PendingWork {
public:
  static PendingWork &instance();

  /// Performs work on a stream: at once if nothing that it follows is pending. Throws what the work throws if
  /// it is performed at once.
  void issue(const Work &work, cudaStream_t stream);

  bool is_pending(cudaStream_t stream);
  bool is_pending(cudaEvent_t event);
  // The host waits. These throw the error of the work, and end a wait for kernels that nothing can release.
  void wait_for(cudaStream_t stream);
  void wait_for(cudaEvent_t event);
  void wait_for_all();

private:
  struct Task {
    StreamId stream;
    bool is_blocking;
    Work work;
    std::shared_ptr<LaunchInProgress> launch; ///< suspended
    std::vector<std::shared_ptr<Task>> after;
    bool is_done = false;
  };
  using Tasks = std::vector<std::shared_ptr<Task>>;

  static bool are_done(const Tasks &tasks);
  bool is_empty() const { return count_ == 0; }
  Tasks earlier(StreamId stream, bool is_blocking) const;
  Tasks recorded(cudaEvent_t event) const;
  void add(std::shared_ptr<Task> task);
  void wait_for(std::unique_lock<std::mutex> &lock, const Tasks &tasks);
  void work();
  std::uint64_t looks_between_pauses() const;
  bool look(std::unique_lock<std::mutex> &lock);
  bool step(Task &task);
  void complete(const std::shared_ptr<Task> &task);
  bool is_deadlocked() const;
  void tell_of_waiting(const char *when);
  void give_up();
  void finish();

  std::mutex mutex_; ///< guards what follows
  std::condition_variable changed_, completed_;
  std::list<std::shared_ptr<Task>> tasks_;      ///< in the order of their calls
  std::atomic<std::size_t> count_{0};           ///< of tasks_
  int waiting_ = 0;                             ///< threads of the host
  std::uint64_t pauses_ = 0;                    ///< without progress, while the host waits
  std::chrono::steady_clock::time_point moved_; ///< when there last was progress
  cudaError_t error_ = cudaSuccess;             ///< of work, for the next wait
  std::atomic<bool> has_ended_{false};          ///< the program
  std::thread thread_;
};

} // namespace ladder::runtime
