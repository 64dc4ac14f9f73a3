// Streams. Work runs synchronously, so a stream is only its properties.
#pragma once

#include "runtime/cuda_api.h"
#include "runtime/stream_order.h"

namespace ladder::runtime {

/// Throws CudaError(cudaErrorInvalidResourceHandle) unless `stream` is a live or default stream.
void require_stream(cudaStream_t stream);
/// The stream's number, as from cudaStreamGetId. Throws like require_stream.
StreamId stream_id(cudaStream_t stream);

/// cudaDeviceReset: invalidates all handles.
void destroy_streams_and_events();

} // namespace ladder::runtime
