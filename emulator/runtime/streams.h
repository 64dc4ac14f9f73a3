// Streams. Work is done when it is asked for, so a stream is no more than its properties.
#pragma once

#include "runtime/cuda_api.h"
#include "runtime/stream_order.h"

namespace ladder::runtime {

/// Throws CudaError(cudaErrorInvalidResourceHandle) for what is neither a live stream nor a default one.
void require_stream(cudaStream_t stream);
/// Its number, as cudaStreamGetId gives it. Throws as require_stream does.
StreamId stream_id(cudaStream_t stream);

/// cudaDeviceReset: none of the handles that were given out is good any more.
void destroy_streams_and_events();

} // namespace ladder::runtime
