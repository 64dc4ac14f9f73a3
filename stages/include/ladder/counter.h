// A counter in global memory from which the blocks of a launch take numbers.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "ladder/workspace.h"

namespace ladder {

namespace detail {
constexpr int kCounters = 1024;
static __device__ unsigned counters[kCounters];
} // namespace detail

/// The counter of a launch: it is 0 when the kernel starts, and the kernel leaves it at 0.
///
/// Launches on one stream follow each other and share a counter; launches on different streams have different
/// ones. A captured launch may later run at the same time as any other, so its counter is a workspace of its
/// own, which the graph sets to 0. When all kCounters are taken, launches on further streams use workspaces,
/// too.
class LaunchCounter {
public:
  LaunchCounter(cudaStream_t stream, const char *what) {
    cudaStreamCaptureStatus capture;
    check(cudaStreamIsCapturing(stream, &capture), what);
    const int number = capture == cudaStreamCaptureStatusNone ? number_of(stream, what) : detail::kCounters;
    if (number < detail::kCounters) {
      void *counters;
      check(cudaGetSymbolAddress(&counters, detail::counters), what);
      data_ = static_cast<unsigned *>(counters) + number;
    } else {
      own_.emplace(1, stream, what);
      data_ = own_->data();
      check(cudaMemsetAsync(data_, 0, sizeof(unsigned), stream), what);
    }
  }
  unsigned *data() const { return data_; }

private:
  /// Streams are numbered in the order of their first launches.
  static int number_of(cudaStream_t stream, const char *what) {
    static std::mutex mutex;
    static std::map<unsigned long long, int> numbers; // by id, which is never reused
    unsigned long long id;
    check(cudaStreamGetId(stream, &id), what);
    const std::lock_guard lock(mutex);
    return numbers.try_emplace(id, numbers.size()).first->second;
  }

  std::optional<Workspace<unsigned>> own_;
  unsigned *data_;
};

} // namespace ladder
