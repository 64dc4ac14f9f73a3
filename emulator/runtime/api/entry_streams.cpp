// Streams and events.
#include "runtime/observe/checking.h"
#include "runtime/observe/host_guard.h"
#include "runtime/work/capture.h"
#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>

using namespace ladder::runtime;

namespace {

struct Stream {
  unsigned flags = cudaStreamDefault;
  int priority = 0;
  unsigned long long id = 0;
};

struct Event {
  unsigned flags = cudaEventDefault;
  bool recorded = false;
  std::chrono::steady_clock::time_point time{};
};

constexpr int kLowestPriority = 0, kHighestPriority = -5;

/// Live handles. No handle is reused, so that using a destroyed one stays an error.
template <typename Object, typename Handle> class Handles {
public:
  Handle add(Object object) {
    const std::lock_guard lock(mutex_);
    const auto handle = reinterpret_cast<Handle>(next_);
    next_ += kStep;
    objects_[handle] = std::move(object);
    return handle;
  }
  /// Throws CudaError(cudaErrorInvalidResourceHandle).
  Object get(Handle handle) {
    const std::lock_guard lock(mutex_);
    return find(handle)->second;
  }
  void set(Handle handle, Object object) {
    const std::lock_guard lock(mutex_);
    find(handle)->second = std::move(object);
  }
  void remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    objects_.erase(find(handle));
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    objects_.clear();
  }

private:
  static constexpr std::uintptr_t kStep = 16; // skips the small numbers that denote default streams

  auto find(Handle handle) {
    const auto found = objects_.find(handle);
    require(found != objects_.end(), cudaErrorInvalidResourceHandle);
    return found;
  }

  std::mutex mutex_;
  std::uintptr_t next_ = kStep;
  std::unordered_map<Handle, Object> objects_;
};

// Never destroyed: programs destroy streams in static destructors of their own.
auto &streams = *new Handles<Stream, cudaStream_t>;
auto &events = *new Handles<Event, cudaEvent_t>;
std::atomic<unsigned long long> next_stream_id{3};

bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

Stream properties(cudaStream_t stream) {
  if (!is_default(stream))
    return streams.get(stream);
  return {.id = stream == cudaStreamPerThread ? 2ull : 1ull};
}

/// The sanitizer's stream order; nullptr if it is off.
StreamOrder *order() {
  Checking *const checking = Checking::active();
  return checking ? &checking->streams() : nullptr;
}

void host_waits(cudaStream_t stream) {
  const StreamId id = stream_id(stream);
  refuse_captured(id);
  PendingWork::instance().wait_for(stream);
  if (StreamOrder *const known = order())
    known->host_waits(id);
}

void host_waits(cudaEvent_t event) {
  events.get(event);
  refuse_captured(event);
  PendingWork::instance().wait_for(event);
  if (StreamOrder *const known = order())
    known->host_waits_for_event(event);
}

} // namespace

void ladder::runtime::require_stream(cudaStream_t stream) { properties(stream); }

StreamId ladder::runtime::stream_id(cudaStream_t stream) { return properties(stream).id; }

bool ladder::runtime::is_blocking(cudaStream_t stream) {
  return !(properties(stream).flags & cudaStreamNonBlocking);
}

void ladder::runtime::require_event(cudaEvent_t event) { events.get(event); }

StreamId ladder::runtime::new_lane() {
  const StreamId id = next_stream_id++;
  if (StreamOrder *const known = order())
    known->add_stream(id, false);
  return id;
}

void ladder::runtime::record_event(cudaEvent_t event, StreamId stream) {
  Event recorded = events.get(event);
  if (StreamOrder *const known = order())
    known->record_event(event, stream);
  recorded.recorded = true;
  recorded.time = std::chrono::steady_clock::now();
  events.set(event, recorded);
}

void ladder::runtime::wait_for_event(StreamId stream, cudaEvent_t event) {
  events.get(event);
  if (StreamOrder *const known = order())
    known->wait_event(stream, event);
}

void ladder::runtime::destroy_streams_and_events() {
  forget_captures();
  streams.clear();
  events.clear();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  return on_device([&] {
    require(stream && (flags & ~unsigned(cudaStreamNonBlocking)) == 0);
    const int clamped = std::min(kLowestPriority, std::max(kHighestPriority, priority));
    const StreamId id = next_stream_id++;
    *stream = streams.add({.flags = flags, .priority = clamped, .id = id});
    if (StreamOrder *const known = order())
      known->add_stream(id, !(flags & cudaStreamNonBlocking));
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, kLowestPriority);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return on_device([&] { streams.remove(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return on_device([&] { host_waits(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return on_device([&] {
    require(!PendingWork::instance().is_pending(stream), cudaErrorNotReady);
    StreamOrder *const known = order();
    require(!known || !known->answers_not_ready(stream_id(stream)), cudaErrorNotReady);
    host_waits(stream);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return on_device([&] {
    const StreamId id = stream_id(stream);
    events.get(event);
    const bool is_captured = flags == cudaEventWaitExternal
                                 ? capture(id, [&]() -> Work { return WaitWork{event}; })
                                 : capture_wait(stream, event);
    if (!is_captured)
      PendingWork::instance().issue(WaitWork{event}, stream);
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data,
                                  unsigned flags) {
  return on_device([&] {
    host_waits(stream);
    require(callback && flags == 0);
    const ClosedDeviceMemory closed;
    callback(stream, cudaSuccess, data);
  });
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *, size_t, unsigned) {
  return on_device([&] { require_stream(stream); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
  return on_device([&] { set(flags, properties(stream).flags); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  return on_device([&] { set(priority, properties(stream).priority); });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
  return on_device([&] { set(id, properties(stream).id); });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
  return on_device([&] {
    require_stream(stream);
    set(device, 0);
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest) {
  return query([&] {
    if (lowest)
      *lowest = kLowestPriority;
    if (highest)
      *highest = kHighestPriority;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  return on_device([&] {
    require(event);
    require((flags & ~unsigned(cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess)) == 0);
    *event = events.add({.flags = flags});
  });
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return on_device([&] {
    const StreamId id = stream_id(stream);
    events.get(event);
    const bool is_captured = flags == cudaEventRecordExternal
                                 ? capture(id, [&]() -> Work { return RecordWork{event}; })
                                 : capture_record(event, id);
    if (!is_captured)
      PendingWork::instance().issue(RecordWork{event}, stream);
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return on_device([&] {
    events.get(event);
    require(!PendingWork::instance().is_pending(event), cudaErrorNotReady);
    StreamOrder *const known = order();
    require(!known || !known->answers_not_ready(event), cudaErrorNotReady);
    host_waits(event);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return on_device([&] { host_waits(event); });
}

/// The wall time of the emulation, not a GPU's time.
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return on_device([&] {
    require(milliseconds);
    for (const cudaEvent_t event : {start, end})
      require(!PendingWork::instance().is_pending(event), cudaErrorNotReady);
    const Event first = events.get(start), last = events.get(end);
    for (const Event &event : {first, last})
      require(event.recorded && !(event.flags & cudaEventDisableTiming), cudaErrorInvalidResourceHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(last.time - first.time).count();
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return on_device([&] { events.remove(event); });
}
