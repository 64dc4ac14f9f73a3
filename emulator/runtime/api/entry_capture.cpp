// Stream capture.
#include "runtime/work/capture.h"
#include "runtime/work/entry.h"
#include "runtime/work/graph_nodes.h"
#include "runtime/work/streams.h"

using namespace ladder::runtime;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return on_device([&] { begin_capture(stream, mode); });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges,
                                          size_t count, cudaStreamCaptureMode mode) {
  return on_device([&] {
    require_plain_edges(edges, count);
    begin_capture(stream, mode, graph, find_nodes(dependencies, count));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  return on_device([&] {
    require(graph);
    *graph = nullptr;
    *graph = end_capture(stream);
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  return on_device([&] { set(status, capture_info(stream_id(stream)).status); });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges,
                                     size_t *count) {
  return on_device([&] {
    const CaptureInfo info = capture_info(stream_id(stream));
    set(status, info.status);
    if (info.status == cudaStreamCaptureStatusNone)
      return;
    if (id)
      *id = info.id;
    if (graph)
      *graph = info.graph;
    if (dependencies)
      *dependencies = info.dependencies;
    if (edges)
      *edges = info.edges;
    if (count)
      *count = info.count;
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                const cudaGraphEdgeData *edges, size_t count,
                                                unsigned flags) {
  return on_device([&] {
    require(flags == cudaStreamAddCaptureDependencies || flags == cudaStreamSetCaptureDependencies);
    require_plain_edges(edges, count);
    update_dependencies(stream_id(stream), find_nodes(dependencies, count),
                        flags == cudaStreamAddCaptureDependencies);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  return on_device([&] {
    require(mode);
    require(*mode == cudaStreamCaptureModeGlobal || *mode == cudaStreamCaptureModeThreadLocal ||
            *mode == cudaStreamCaptureModeRelaxed);
    *mode = exchange_capture_mode(*mode);
  });
}
