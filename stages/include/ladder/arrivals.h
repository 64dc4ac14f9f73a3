// Counters in global memory with which the blocks of a launch find out which of them finishes a part of the
// work last.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "ladder/workspace.h"

namespace ladder {

namespace detail {
constexpr int kArrivals = 1 << 18, kArrivalsOfStream = 1 << 13;
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
    const int first = first_of(count, capture != cudaStreamCaptureStatusNone, stream, what);
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
  /// The first of the counters; kArrivals if there are not enough left. Streams get theirs at their first
  /// launch.
  static int first_of(int count, bool is_captured, cudaStream_t stream, const char *what) {
    static std::mutex mutex;
    static std::map<unsigned long long, int> streams; // by id, which is never reused
    static int next = 0;
    const auto take = [](int size) {
      const bool enough = size <= detail::kArrivals - next;
      next += enough ? size : 0;
      return enough ? next - size : detail::kArrivals;
    };
    const std::lock_guard lock(mutex);
    if (is_captured)
      return take(count);
    if (count > detail::kArrivalsOfStream)
      return detail::kArrivals;
    unsigned long long id;
    check(cudaStreamGetId(stream, &id), what);
    const auto found = streams.find(id);
    return found != streams.end() ? found->second
                                  : streams.emplace(id, take(detail::kArrivalsOfStream)).first->second;
  }

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
