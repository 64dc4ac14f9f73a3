// Streams: their properties. What they order is in pending_work.h, and for the sanitizer in stream_order.h.
#pragma once

#include "runtime/observe/stream_order.h"
#include "runtime/work/capture.h"
#include "runtime/work/entry.h"
#include "runtime/work/pending_work.h"

#include <type_traits>

namespace ladder::runtime {

/// Throws CudaError(cudaErrorInvalidResourceHandle) unless `stream` is a live or default stream.
void require_stream(cudaStream_t stream);
/// The stream's number, as from cudaStreamGetId. Throws like require_stream.
StreamId stream_id(cudaStream_t stream);
/// Whether the stream synchronises with the legacy stream. Throws like require_stream.
bool is_blocking(cudaStream_t stream);
/// Throws CudaError(cudaErrorInvalidResourceHandle) unless `event` is live.
void require_event(cudaEvent_t event);
/// Another order of work, beside those of the program's streams.
StreamId new_lane();

void record_event(cudaEvent_t event, StreamId stream);
/// Orders the stream's next work after the event.
void wait_for_event(StreamId stream, cudaEvent_t event);

/// Runs the body of an entry point that issues work to a stream. A stream that captures keeps what `describe`
/// returns, a Work; so does one whose earlier work is pending, if it is a copy or a fill.
template <typename Body, typename Describe>
cudaError_t on_stream(cudaStream_t stream, Body &&body, Describe &&describe,
                      const char *call = __builtin_FUNCTION()) {
  return on_device(
      [&] {
        const StreamId id = stream_id(stream);
        if (capture(id, [&]() -> Work { return describe(); }))
          return;
        PendingWork &pending = PendingWork::instance();
        using Described = decltype(describe());
        if constexpr (std::is_same_v<Described, CopyWork> || std::is_same_v<Described, FillWork>) {
          if (pending.is_pending(stream))
            return pending.issue(describe(), stream);
        } else {
          pending.wait_for(stream);
        }
        const OnStream on_stream(id);
        body();
      },
      call);
}

/// The same for work that cannot be captured, and waits for what is pending.
template <typename Body>
cudaError_t on_stream(cudaStream_t stream, Body &&body, const char *call = __builtin_FUNCTION()) {
  return on_device(
      [&] {
        const StreamId id = stream_id(stream);
        refuse_captured(id);
        PendingWork::instance().wait_for(stream);
        const OnStream on_stream(id);
        body();
      },
      call);
}

/// cudaDeviceReset: invalidates all handles.
void destroy_streams_and_events();

} // namespace ladder::runtime
