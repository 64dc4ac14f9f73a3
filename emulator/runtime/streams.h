// Streams. Work runs synchronously, so a stream is only its properties.
#pragma once

#include "runtime/entry.h"
#include "runtime/stream_order.h"

namespace ladder::runtime {

/// Throws CudaError(cudaErrorInvalidResourceHandle) unless `stream` is a live or default stream.
void require_stream(cudaStream_t stream);
/// The stream's number, as from cudaStreamGetId. Throws like require_stream.
StreamId stream_id(cudaStream_t stream);

/// Runs the body of an entry point that issues work to a stream.
template <typename Body>
cudaError_t on_stream(cudaStream_t stream, Body &&body, const char *call = __builtin_FUNCTION()) {
  return on_device(
      [&] {
        const OnStream on_stream(stream_id(stream));
        body();
      },
      call);
}

/// cudaDeviceReset: invalidates all handles.
void destroy_streams_and_events();

} // namespace ladder::runtime
