// A counter in global memory from which the blocks of a launch take numbers.
#pragma once

#include <optional>

#include "ladder/stream_counters.h"
#include "ladder/workspace.h"

namespace ladder {

namespace detail {
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
    const int number =
        capture == cudaStreamCaptureStatusNone ? detail::number_of(stream, what) : detail::kCounters;
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
  std::optional<Workspace<unsigned>> own_;
  unsigned *data_;
};

} // namespace ladder
