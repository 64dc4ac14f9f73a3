// Streams that capture: their work becomes nodes of a graph instead of being performed.
#pragma once

#include "runtime/work/graph.h"

#include <functional>
#include <optional>

namespace ladder::runtime {

/// What a stream captures.
struct CaptureInfo {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t *dependencies = nullptr; ///< until the next call for this stream
  const cudaGraphEdgeData *edges = nullptr;
  std::size_t count = 0;
};

/// `graph`: an existing graph to which nodes are added after `before`; none: a new one.
void begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode, std::optional<cudaGraph_t> graph = {},
                   const std::vector<GraphNode *> &before = {});
cudaGraph_t end_capture(cudaStream_t stream);
CaptureInfo capture_info(StreamId stream);
/// Sets, or adds to, the nodes that the stream's next node depends on.
void update_dependencies(StreamId stream, const std::vector<GraphNode *> &nodes, bool adds);

/// Adds work to what the stream captures; returns false if it captures nothing. `describe` is called only if
/// it captures.
bool capture(StreamId stream, const std::function<Work()> &describe);
/// Records that an event follows the stream's captured work; returns false if it captures nothing.
bool capture_record(cudaEvent_t event, StreamId stream);
/// Orders a stream after a captured event, which makes it capture too; returns false if the event is not
/// captured.
bool capture_wait(cudaStream_t stream, cudaEvent_t event);

// Calls that a capture forbids: each ends it and throws.
/// Work on the stream, or a wait for it, that cannot be captured.
void refuse_captured(StreamId stream);
/// A wait for an event that a capture has recorded.
void refuse_captured(cudaEvent_t event);
/// A call that concerns all streams: "unsafe" to CUDA, unless the capture's mode or the thread's allows it.
void refuse_unsafe_call();
/// The host's wait for the legacy stream, which waits for all blocking streams.
void refuse_legacy_stream();

/// Exchanges this host thread's mode.
cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode);
/// cudaDeviceReset.
void forget_captures();

} // namespace ladder::runtime
