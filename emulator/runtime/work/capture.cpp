#include "runtime/work/capture.h"

#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace ladder::runtime {

namespace {

struct Capture {
  unsigned long long id;
  std::shared_ptr<Graph> graph;
  std::optional<cudaGraph_t> existing; ///< the graph is the program's
  cudaStreamCaptureMode mode;
  StreamId origin;
  std::thread::id thread;
  bool is_invalid = false;
};

/// A stream that takes part: its next node depends on `last`.
struct Part {
  std::shared_ptr<Capture> capture;
  bool is_blocking;
  std::vector<GraphNode *> last;
  std::vector<cudaGraphNode_t> told; ///< what capture_info has returned
  std::vector<cudaGraphEdgeData> told_edges;
};

struct CapturedEvent {
  std::weak_ptr<Capture> capture;
  std::vector<GraphNode *> last;
};

struct State {
  std::mutex mutex;
  std::map<StreamId, Part> parts;
  std::map<cudaEvent_t, CapturedEvent> events;
  unsigned long long next_id = 1;
};
// Never destroyed, as streams are.
auto &state = *new State;
std::atomic<std::size_t> capturing{0}; ///< streams; without any, calls need not look
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

Part *part_of(StreamId stream) {
  const auto found = state.parts.find(stream);
  return found == state.parts.end() ? nullptr : &found->second;
}

/// Ends the capture and throws.
[[noreturn]] void invalidate(Capture &capture, cudaError_t code, const char *message = "") {
  capture.is_invalid = true;
  throw CudaError(code, message);
}

void require_valid(const Capture &capture) {
  require(!capture.is_invalid, cudaErrorStreamCaptureInvalidated);
}

void add_missing(std::vector<GraphNode *> &nodes, const std::vector<GraphNode *> &more) {
  for (GraphNode *node : more)
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end())
      nodes.push_back(node);
}

/// The nodes and all that they depend on.
std::set<const GraphNode *> history(const std::vector<GraphNode *> &nodes) {
  std::set<const GraphNode *> seen;
  std::vector<GraphNode *> todo = nodes;
  while (!todo.empty()) {
    const GraphNode *const node = todo.back();
    todo.pop_back();
    if (seen.insert(node).second)
      todo.insert(todo.end(), node->before.begin(), node->before.end());
  }
  return seen;
}

bool is_joined(const Capture &capture, const std::vector<GraphNode *> &last) {
  const auto seen = history(last);
  return std::all_of(state.parts.begin(), state.parts.end(), [&](const auto &entry) {
    const Part &part = entry.second;
    return part.capture.get() != &capture ||
           std::all_of(part.last.begin(), part.last.end(), [&](auto *node) { return seen.contains(node); });
  });
}

void add_part(StreamId stream, Part part) {
  state.parts[stream] = std::move(part);
  capturing = state.parts.size();
}

void remove_parts(const Capture &capture) {
  std::erase_if(state.parts, [&](const auto &entry) { return entry.second.capture.get() == &capture; });
  std::erase_if(state.events, [&](const auto &entry) {
    const auto other = entry.second.capture.lock();
    return !other || other.get() == &capture;
  });
  capturing = state.parts.size();
}

} // namespace

void begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode, std::optional<cudaGraph_t> graph,
                   const std::vector<GraphNode *> &before) {
  const StreamId id = stream_id(stream);
  require(mode == cudaStreamCaptureModeGlobal || mode == cudaStreamCaptureModeThreadLocal ||
          mode == cudaStreamCaptureModeRelaxed);
  require(id != kLegacyStream, cudaErrorStreamCaptureUnsupported, "the legacy stream cannot capture");
  const std::shared_ptr<Graph> target = graph ? find_graph(*graph) : std::make_shared<Graph>();
  for (const GraphNode *node : before)
    require(&node->graph == target.get());
  const std::lock_guard lock(state.mutex);
  require(!part_of(id), cudaErrorIllegalState, "the stream captures already");
  auto capture = std::make_shared<Capture>(
      Capture{state.next_id++, target, graph, mode, id, std::this_thread::get_id()});
  add_part(id, {std::move(capture), is_blocking(stream), before, {}, {}});
}

cudaGraph_t end_capture(cudaStream_t stream) {
  const StreamId id = stream_id(stream);
  const std::lock_guard lock(state.mutex);
  const Part *const part = part_of(id);
  require(part, cudaErrorIllegalState, "the stream does not capture");
  const std::shared_ptr<Capture> capture = part->capture;
  require(capture->origin == id, cudaErrorStreamCaptureUnmatched);
  require(capture->mode == cudaStreamCaptureModeRelaxed || capture->thread == std::this_thread::get_id(),
          cudaErrorStreamCaptureWrongThread);
  const bool joined = is_joined(*capture, part->last);
  remove_parts(*capture);
  require_valid(*capture);
  require(joined, cudaErrorStreamCaptureUnjoined,
          "a stream took part in the capture, and nothing waits for its last work (cudaStreamWaitEvent)");
  return capture->existing ? *capture->existing : own_graph(capture->graph);
}

CaptureInfo capture_info(StreamId stream) {
  const std::lock_guard lock(state.mutex);
  Part *const part = part_of(stream);
  if (!part)
    return {};
  const Capture &capture = *part->capture;
  if (capture.is_invalid)
    return {.status = cudaStreamCaptureStatusInvalidated, .id = capture.id};
  part->told.clear();
  for (const GraphNode *node : part->last)
    part->told.push_back(handle_of(*node));
  part->told_edges.assign(part->last.size(), {});
  return {.status = cudaStreamCaptureStatusActive,
          .id = capture.id,
          .graph = capture.existing ? *capture.existing : child_handle(capture.graph),
          .dependencies = part->told.data(),
          .edges = part->told_edges.data(),
          .count = part->told.size()};
}

void update_dependencies(StreamId stream, const std::vector<GraphNode *> &nodes, bool adds) {
  const std::lock_guard lock(state.mutex);
  Part *const part = part_of(stream);
  require(part, cudaErrorIllegalState, "the stream does not capture");
  require_valid(*part->capture);
  for (const GraphNode *node : nodes)
    require(&node->graph == part->capture->graph.get());
  if (!adds)
    part->last.clear();
  add_missing(part->last, nodes);
}

bool capture(StreamId stream, const std::function<Work()> &describe) {
  if (!capturing)
    return false;
  const std::lock_guard lock(state.mutex);
  if (Part *const part = part_of(stream)) {
    require_valid(*part->capture);
    part->last = {&part->capture->graph->add(describe(), part->last)};
    return true;
  }
  if (stream == kLegacyStream)
    for (auto &[id, part] : state.parts)
      if (part.is_blocking)
        invalidate(*part.capture, cudaErrorStreamCaptureImplicit);
  return false;
}

bool capture_record(cudaEvent_t event, StreamId stream) {
  if (!capturing)
    return false;
  const std::lock_guard lock(state.mutex);
  const Part *const part = part_of(stream);
  if (!part) {
    state.events.erase(event);
    return false;
  }
  require_valid(*part->capture);
  state.events[event] = {part->capture, part->last};
  return true;
}

bool capture_wait(cudaStream_t stream, cudaEvent_t event) {
  if (!capturing)
    return false;
  const StreamId id = stream_id(stream);
  const std::lock_guard lock(state.mutex);
  Part *const part = part_of(id);
  const auto found = state.events.find(event);
  const auto source = found == state.events.end() ? nullptr : found->second.capture.lock();
  if (!source) {
    if (part)
      invalidate(*part->capture, cudaErrorStreamCaptureIsolation);
    return false;
  }
  require_valid(*source);
  if (id == kLegacyStream)
    invalidate(*source, cudaErrorStreamCaptureImplicit);
  if (!part) {
    add_part(id, {source, is_blocking(stream), found->second.last, {}, {}});
    return true;
  }
  require_valid(*part->capture);
  if (part->capture != source) {
    source->is_invalid = true;
    invalidate(*part->capture, cudaErrorStreamCaptureMerge);
  }
  add_missing(part->last, found->second.last);
  return true;
}

void refuse_captured(StreamId stream) {
  if (!capturing)
    return;
  const std::lock_guard lock(state.mutex);
  if (const Part *const part = part_of(stream))
    invalidate(*part->capture, cudaErrorStreamCaptureUnsupported,
               "the stream captures, and this call cannot be captured");
}

void refuse_captured(cudaEvent_t event) {
  if (!capturing)
    return;
  const std::lock_guard lock(state.mutex);
  const auto found = state.events.find(event);
  if (const auto source = found == state.events.end() ? nullptr : found->second.capture.lock())
    invalidate(*source, cudaErrorCapturedEvent);
}

void refuse_unsafe_call() {
  if (!capturing || thread_mode == cudaStreamCaptureModeRelaxed)
    return;
  const std::lock_guard lock(state.mutex);
  for (const auto &[id, part] : state.parts) {
    Capture &capture = *part.capture;
    const bool is_own = capture.thread == std::this_thread::get_id();
    const bool is_everywhere =
        capture.mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (capture.mode != cudaStreamCaptureModeRelaxed && (is_own || is_everywhere))
      invalidate(capture, cudaErrorStreamCaptureUnsupported,
                 "not allowed while a stream captures, except in cudaStreamCaptureModeRelaxed");
  }
}

void refuse_legacy_stream() {
  capture(kLegacyStream, [] { return Work(EmptyWork{}); });
}

cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

void forget_captures() {
  const std::lock_guard lock(state.mutex);
  state.parts.clear();
  state.events.clear();
  capturing = 0;
}

} // namespace ladder::runtime
