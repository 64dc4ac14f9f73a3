// Counters in global memory with which the blocks of a launch find out which of them finishes a part of the
// work last.
#pragma once

#include <optional>

#include "ladder/stream_counters.h"
#include "ladder/workspace.h"

namespace ladder {

namespace detail {
static __device__ unsigned arrivals[kArrivals];
} // namespace detail

/// `count` counters that are 0 when the kernel starts; the kernel leaves them at 0.
///
/// Launches on one stream follow each other and share counters. Each captured launch has its own: its graph
/// may run at the same time as any other launch, but not as itself. When all are taken, or for a launch that
/// needs more than a stream has, they are a workspace, which takes a memset.
class Arrivals {
public:
  Arrivals(int count, cudaStream_t stream, const char *what) {
    cudaStreamCaptureStatus capture;
    check(cudaStreamIsCapturing(stream, &capture), what);
    const bool is_captured = capture != cudaStreamCaptureStatusNone;
    const int first = detail::first_arrival(count, is_captured, stream, what);
    if (first + count <= detail::kArrivals) {
      void *arrivals;
      check(cudaGetSymbolAddress(&arrivals, detail::arrivals), what);
      data_ = static_cast<unsigned *>(arrivals) + first;
    } else {
      own_.emplace(count, stream, what);
      data_ = own_->data();
      check(cudaMemsetAsync(data_, 0, count * sizeof(unsigned), stream), what);
    }
  }
  unsigned *data() const { return data_; }

private:
  std::optional<Workspace<unsigned>> own_;
  unsigned *data_;
};

/// Whether the calling warp is the last of `count` that arrive at a counter. What all of them wrote before
/// is then visible to it, and the counter is 0 again.
__device__ inline bool is_last_arrival(unsigned *counter, unsigned count) {
  __threadfence();
  __syncwarp();
  const unsigned before = threadIdx.x % 32 == 0 ? atomicInc(counter, count - 1) : 0;
  const bool is_last = __shfl_sync(0xffffffffu, before, 0) == count - 1;
  __threadfence();
  __syncwarp(); // a shuffle orders no memory
  return is_last;
}

} // namespace ladder
