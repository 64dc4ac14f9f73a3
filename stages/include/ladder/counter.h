// A counter in device memory from which the blocks of a launch take numbers.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "ladder/workspace.h"

namespace ladder {

/// The counter of a launch: it is 0 when the kernel starts, and the kernel leaves it at 0. So the launches on
/// a stream, which follow each other, share one, set to 0 once and kept as long as the process. Launches on
/// different streams have different counters. A launch that is captured may later run beside any other one:
/// its counter belongs to the graph, which sets it to 0.
class LaunchCounter {
public:
  LaunchCounter(cudaStream_t stream, const char *what) {
    cudaStreamCaptureStatus capture;
    check(cudaStreamIsCapturing(stream, &capture), what);
    if (capture == cudaStreamCaptureStatusNone) {
      data_ = counter_of(stream, what);
    } else {
      captured_.emplace(1, stream, what);
      data_ = captured_->data();
      check(cudaMemsetAsync(data_, 0, sizeof(unsigned), stream), what);
    }
  }
  unsigned *data() const { return data_; }

private:
  static unsigned *counter_of(cudaStream_t stream, const char *what) {
    static std::mutex mutex;
    static std::map<std::pair<int, unsigned long long>, unsigned *> counters; // by device and stream
    int device;
    unsigned long long id; // unlike the handle, never used again
    check(cudaGetDevice(&device), what);
    check(cudaStreamGetId(stream, &id), what);
    const std::lock_guard lock(mutex);
    unsigned *&counter = counters[{device, id}];
    if (counter == nullptr) {
      unsigned *data;
      check(cudaMallocAsync(&data, sizeof(unsigned), stream), what);
      check(cudaMemsetAsync(data, 0, sizeof(unsigned), stream), what);
      counter = data;
    }
    return counter;
  }

  std::optional<Workspace<unsigned>> captured_;
  unsigned *data_;
};

} // namespace ladder
