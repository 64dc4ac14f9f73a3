// Graphs and stream capture: nodes, edges, launches, updates, and what a capture forbids.
#include "check.h"

#include <cstdint>
#include <vector>

__global__ void add(int *data, int value, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    data[i] += value;
}

__global__ void scale(int *data, int factor, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    data[i] *= factor;
}

__device__ int variable;
__global__ void read_variable(int *data) { data[0] = variable; }

constexpr int kN = 100;
constexpr size_t kBytes = kN * sizeof(int);

struct Buffers {
  int *host, *device;
  Buffers() {
    CUDA(cudaMallocHost(&host, kBytes));
    CUDA(cudaMalloc(&device, kBytes));
    CUDA(cudaMemset(device, 0, kBytes));
    for (int i = 0; i < kN; ++i)
      host[i] = i;
  }
  ~Buffers() {
    CUDA(cudaFreeHost(host));
    CUDA(cudaFree(device));
  }
  int at(int i) const {
    int value;
    CUDA(cudaMemcpy(&value, device + i, sizeof value, cudaMemcpyDeviceToHost));
    return value;
  }
};

cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec;
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

void launch(cudaGraphExec_t exec, cudaStream_t stream) {
  CUDA(cudaGraphLaunch(exec, stream));
  CUDA(cudaStreamSynchronize(stream));
}

size_t count_nodes(cudaGraph_t graph) {
  size_t count = 0;
  CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  return count;
}

cudaKernelNodeParams kernel_params(void (*kernel)(int *, int, int), void **arguments) {
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void *>(kernel);
  params.gridDim = dim3(4);
  params.blockDim = dim3(32);
  params.kernelParams = arguments;
  return params;
}

void count_call(void *data) { ++*static_cast<int *>(data); }

// copy in -> add -> scale -> copy out -> host
void explicit_graph(cudaStream_t stream) {
  Buffers buffers;
  int value = 5, factor = 3, n = kN, calls = 0;
  std::vector<int> out(kN, -1);
  cudaGraph_t graph;
  CUDA(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t in, adds, scales, out_node, host;
  CUDA(cudaGraphAddMemcpyNode1D(&in, graph, nullptr, 0, buffers.device, buffers.host, kBytes,
                                cudaMemcpyHostToDevice));
  void *add_arguments[] = {&buffers.device, &value, &n}, *scale_arguments[] = {&buffers.device, &factor, &n};
  cudaKernelNodeParams adding = kernel_params(add, add_arguments);
  const cudaKernelNodeParams scaling = kernel_params(scale, scale_arguments);
  // The order of creation is not that of the work.
  CUDA(cudaGraphAddKernelNode(&scales, graph, nullptr, 0, &scaling));
  CUDA(cudaGraphAddKernelNode(&adds, graph, &in, 1, &adding));
  CUDA(cudaGraphAddDependencies(graph, &adds, &scales, nullptr, 1));
  value = 1000; // the arguments were copied
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(buffers.device, kBytes, kN, 1);
  copy.dstPtr = make_cudaPitchedPtr(out.data(), kBytes, kN, 1);
  copy.extent = make_cudaExtent(kBytes, 1, 1);
  copy.kind = cudaMemcpyDeviceToHost;
  CUDA(cudaGraphAddMemcpyNode(&out_node, graph, &scales, 1, &copy));
  cudaHostNodeParams host_params{count_call, &calls};
  CUDA(cudaGraphAddHostNode(&host, graph, &out_node, 1, &host_params));

  CHECK(count_nodes(graph) == 5);
  cudaGraphNode_t listed[6];
  size_t count = 6;
  CUDA(cudaGraphGetNodes(graph, listed, &count));
  CHECK(count == 5 && listed[0] == in && listed[1] == scales && listed[5] == nullptr);
  CUDA(cudaGraphGetRootNodes(graph, listed, &(count = 6)));
  CHECK(count == 1 && listed[0] == in);
  CUDA(cudaGraphNodeGetDependencies(scales, listed, nullptr, &(count = 6)));
  CHECK(count == 1 && listed[0] == adds);
  CUDA(cudaGraphNodeGetDependentNodes(scales, listed, nullptr, &(count = 6)));
  CHECK(count == 1 && listed[0] == out_node);
  CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  CHECK(count == 4);
  cudaGraphNodeType type;
  CUDA(cudaGraphNodeGetType(host, &type));
  CHECK(type == cudaGraphNodeTypeHost);
  cudaKernelNodeParams read{};
  CUDA(cudaGraphKernelNodeGetParams(adds, &read));
  CHECK(read.func == reinterpret_cast<void *>(add) && read.gridDim.x == 4);
  CHECK(*static_cast<int *>(read.kernelParams[1]) == 5);

  const cudaGraphExec_t exec = instantiate(graph);
  CHECK(buffers.at(1) == 0 && calls == 0); // nothing has run
  launch(exec, stream);
  CHECK(calls == 1 && out[7] == (7 + 5) * 3 && out[99] == (99 + 5) * 3);

  // A clone keeps what the graph was; an instance is changed by itself.
  cudaGraph_t clone;
  CUDA(cudaGraphClone(&clone, graph));
  cudaGraphNode_t twin;
  CUDA(cudaGraphNodeFindInClone(&twin, adds, clone));
  CHECK(twin != adds);
  CHECK_CODE(cudaGraphNodeFindInClone(&twin, twin, clone), cudaErrorInvalidValue);
  value = 1;
  CUDA(cudaGraphExecKernelNodeSetParams(exec, adds, &adding));
  launch(exec, stream);
  CHECK(out[7] == (7 + 1) * 3);
  const cudaGraphExec_t exec_of_clone = instantiate(clone);
  launch(exec_of_clone, stream);
  CHECK(out[7] == (7 + 5) * 3);
  CUDA(cudaGraphNodeSetEnabled(exec, scales, 0));
  unsigned enabled = 1;
  CUDA(cudaGraphNodeGetEnabled(exec, scales, &enabled));
  CHECK(enabled == 0);
  launch(exec, stream);
  CHECK(out[7] == 7 + 1);
  CHECK_CODE(cudaGraphNodeSetEnabled(exec, host, 0), cudaErrorInvalidValue);

  // An update takes all parameters of a graph of the same shape.
  value = 10;
  CUDA(cudaGraphKernelNodeSetParams(adds, &adding));
  cudaGraphExecUpdateResultInfo info;
  CUDA(cudaGraphExecUpdate(exec, graph, &info));
  CUDA(cudaGraphNodeSetEnabled(exec, scales, 1));
  launch(exec, stream);
  CHECK(info.result == cudaGraphExecUpdateSuccess && out[7] == (7 + 10) * 3);
  CUDA(cudaGraphRemoveDependencies(graph, &adds, &scales, nullptr, 1));
  CHECK_CODE(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  CUDA(cudaGraphDestroyNode(host));
  CHECK_CODE(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
  CHECK_CODE(cudaGraphExecMemcpyNodeSetParams1D(exec, adds, nullptr, nullptr, 0, cudaMemcpyDefault),
             cudaErrorInvalidValue);
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaGraphDestroy(clone));
  launch(exec, stream); // outlives its graph
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphExecDestroy(exec_of_clone));
  CHECK_CODE(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
  CHECK_CODE(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  cudaGetLastError();
}

void fills_and_symbols(cudaStream_t stream) {
  Buffers buffers;
  cudaGraph_t graph;
  CUDA(cudaGraphCreate(&graph, 0));
  cudaMemsetParams fill{};
  fill.dst = buffers.device;
  fill.value = 0x01020304;
  fill.elementSize = 4;
  fill.width = 3;
  fill.height = 2;
  fill.pitch = 40;
  cudaGraphNode_t node, child_node, nodes[2];
  CUDA(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &fill));
  fill.elementSize = 3;
  CHECK_CODE(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &fill), cudaErrorInvalidValue);
  cudaGraphExec_t exec = instantiate(graph);
  launch(exec, stream);
  CHECK(buffers.at(0) == 0x01020304 && buffers.at(2) == 0x01020304 && buffers.at(3) == 0);
  CHECK(buffers.at(10) == 0x01020304 && buffers.at(13) == 0);
  // Of a fill of several rows, an update may change only the place and the value.
  fill.elementSize = 2;
  CHECK_CODE(cudaGraphExecMemsetNodeSetParams(exec, node, &fill), cudaErrorInvalidValue);
  cudaGetLastError();
  fill.elementSize = 4;
  fill.value = 0x11111111;
  CUDA(cudaGraphExecMemsetNodeSetParams(exec, node, &fill));
  launch(exec, stream);
  CHECK(buffers.at(2) == 0x11111111 && buffers.at(3) == 0);
  CUDA(cudaGraphExecDestroy(exec));

  // A child graph is copied into its node.
  cudaGraph_t parent, inner;
  CUDA(cudaGraphCreate(&parent, 0));
  CUDA(cudaGraphAddChildGraphNode(&child_node, parent, nullptr, 0, graph));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaGraphChildGraphNodeGetGraph(child_node, &inner));
  CHECK(count_nodes(inner) == 1);
  cudaMemsetParams pair{};
  pair.dst = buffers.device + 1;
  pair.value = 0x0707;
  pair.elementSize = 2;
  pair.width = pair.height = 1;
  CUDA(cudaGraphAddMemsetNode(&node, parent, &child_node, 1, &pair));
  exec = instantiate(parent);
  launch(exec, stream);
  CHECK(buffers.at(0) == 0x01020304 && buffers.at(1) == 0x01020707);

  // Nodes of other graphs, and cycles.
  cudaGraph_t other;
  CUDA(cudaGraphCreate(&other, 0));
  CHECK_CODE(cudaGraphAddEmptyNode(&nodes[0], other, &node, 1), cudaErrorInvalidValue);
  CUDA(cudaGraphAddEmptyNode(&nodes[0], other, nullptr, 0));
  CUDA(cudaGraphAddEmptyNode(&nodes[1], other, nodes, 1));
  CUDA(cudaGraphAddDependencies(other, &nodes[1], &nodes[0], nullptr, 1));
  cudaGraphExec_t never;
  CHECK_CODE(cudaGraphInstantiate(&never, other, 0), cudaErrorInvalidValue);
  CUDA(cudaGraphDestroy(other));
  CUDA(cudaGraphDestroy(parent));
  CUDA(cudaGraphExecDestroy(exec));
  cudaGetLastError();
}

// Two streams fork and join; nothing runs before the launch.
void captured_graph(cudaStream_t stream) {
  Buffers buffers;
  cudaStream_t side;
  cudaEvent_t fork, join;
  CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&fork));
  CUDA(cudaEventCreate(&join));
  int calls = 0, symbol = 77;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CUDA(cudaMemcpyAsync(buffers.device, buffers.host, kBytes, cudaMemcpyHostToDevice, stream));
  CUDA(cudaEventRecord(fork, stream));
  CUDA(cudaStreamWaitEvent(side, fork, 0));
  add<<<2, 32, 0, side>>>(buffers.device, 1, 50);
  CUDA(cudaGetLastError());
  CUDA(cudaEventRecord(join, side));
  CUDA(cudaMemsetAsync(buffers.device + 50, 0, sizeof(int), stream));
  CUDA(cudaStreamWaitEvent(stream, join, 0));
  scale<<<4, 32, 0, stream>>>(buffers.device, 2, kN);
  CUDA(cudaMemcpyToSymbolAsync(variable, &symbol, sizeof symbol, 0, cudaMemcpyHostToDevice, stream));
  read_variable<<<1, 1, 0, stream>>>(buffers.device + 60);
  CUDA(cudaLaunchHostFunc(stream, count_call, &calls));
  cudaStreamCaptureStatus status, side_status;
  CUDA(cudaStreamIsCapturing(stream, &status));
  CUDA(cudaStreamIsCapturing(side, &side_status));
  CHECK(status == cudaStreamCaptureStatusActive && side_status == cudaStreamCaptureStatusActive);
  cudaGraph_t graph, seen;
  unsigned long long id = 0;
  const cudaGraphNode_t *last;
  size_t count = 0;
  CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &seen, &last, nullptr, &count));
  CHECK(id != 0 && count == 1 && count_nodes(seen) == 7);
  cudaGraphNodeType type;
  CUDA(cudaGraphNodeGetType(*last, &type));
  CHECK(type == cudaGraphNodeTypeHost && calls == 0);
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaStreamIsCapturing(side, &side_status));
  CHECK(side_status == cudaStreamCaptureStatusNone);
  CHECK(count_nodes(graph) == 7 && calls == 0 && buffers.at(1) == 0);
  CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  CHECK(count == 7);

  const cudaGraphExec_t exec = instantiate(graph);
  for (int round = 1; round <= 2; ++round) {
    buffers.host[1] = 100 * round;
    launch(exec, stream);
    CHECK(calls == round && buffers.at(1) == (100 * round + 1) * 2);
    CHECK(buffers.at(50) == 0 && buffers.at(51) == 51 * 2 && buffers.at(60) == 77);
  }

  // A launch is captured as a child graph; more nodes are captured into a graph that exists.
  cudaGraph_t outer;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CUDA(cudaGraphLaunch(exec, stream));
  CUDA(cudaStreamEndCapture(stream, &outer));
  cudaGraphNode_t child;
  CUDA(cudaGraphGetNodes(outer, &child, &(count = 1)));
  CUDA(cudaStreamBeginCaptureToGraph(stream, outer, &child, nullptr, 1, cudaStreamCaptureModeRelaxed));
  int *more;
  CUDA(cudaMalloc(&more, 4)); // a relaxed capture allows it
  CUDA(cudaFree(more));
  add<<<4, 32, 0, stream>>>(buffers.device, 5, kN);
  CUDA(cudaStreamEndCapture(stream, &seen));
  CHECK(seen == outer && count_nodes(outer) == 2);
  const cudaGraphExec_t whole = instantiate(outer);
  launch(whole, stream);
  CHECK(calls == 3 && buffers.at(51) == 51 * 2 + 5);

  CUDA(cudaGraphExecDestroy(whole));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(outer));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaEventDestroy(fork));
  CUDA(cudaEventDestroy(join));
  CUDA(cudaStreamDestroy(side));
}

/// Begins a capture, performs the call, and expects its error to have ended the capture.
#define ENDS_CAPTURE(stream, call, code)                                                                     \
  do {                                                                                                       \
    cudaGraph_t none_;                                                                                       \
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));                                       \
    CHECK_CODE(call, code);                                                                                  \
    cudaStreamCaptureStatus status_;                                                                         \
    CUDA(cudaStreamIsCapturing(stream, &status_));                                                           \
    CHECK(status_ == cudaStreamCaptureStatusInvalidated);                                                    \
    CHECK_CODE(cudaMemsetAsync(nullptr, 0, 1, stream), cudaErrorStreamCaptureInvalidated);                   \
    CHECK_CODE(cudaStreamEndCapture(stream, &none_), cudaErrorStreamCaptureInvalidated);                     \
    CHECK(none_ == nullptr);                                                                                 \
    cudaGetLastError();                                                                                      \
  } while (0)

void forbidden_calls(cudaStream_t stream) {
  Buffers buffers;
  cudaStream_t blocking, side;
  cudaEvent_t event, elsewhere;
  CUDA(cudaStreamCreate(&blocking));
  CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&event));
  CUDA(cudaEventCreate(&elsewhere));
  CUDA(cudaEventRecord(elsewhere, side));
  int value = 0;
  void *pointer;
  cudaGraph_t graph;
  ENDS_CAPTURE(stream, cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  ENDS_CAPTURE(stream, cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
  ENDS_CAPTURE(stream, cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  ENDS_CAPTURE(stream, cudaMalloc(&pointer, 4), cudaErrorStreamCaptureUnsupported);
  ENDS_CAPTURE(blocking, cudaMemcpy(&value, buffers.device, 4, cudaMemcpyDeviceToHost),
               cudaErrorStreamCaptureImplicit);
  ENDS_CAPTURE(blocking, cudaMemsetAsync(buffers.device, 0, 4, nullptr), cudaErrorStreamCaptureImplicit);
  ENDS_CAPTURE(stream, cudaStreamWaitEvent(stream, elsewhere, 0), cudaErrorStreamCaptureIsolation);
  ENDS_CAPTURE(stream, (cudaEventRecord(event, stream), cudaEventQuery(event)), cudaErrorCapturedEvent);
  ENDS_CAPTURE(stream, (cudaEventRecord(event, stream), cudaStreamWaitEvent(nullptr, event, 0)),
               cudaErrorStreamCaptureImplicit);
  // A non-blocking stream's capture does not concern the legacy stream.
  CUDA(cudaStreamBeginCapture(side, cudaStreamCaptureModeGlobal));
  CUDA(cudaMemcpy(&value, buffers.device, 4, cudaMemcpyDeviceToHost));
  CHECK_CODE(cudaStreamBeginCapture(side, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  CUDA(cudaStreamEndCapture(side, &graph));
  CHECK(count_nodes(graph) == 0);
  CUDA(cudaGraphDestroy(graph));
  // Work of another stream that nothing joins.
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CUDA(cudaEventRecord(event, stream));
  CUDA(cudaStreamWaitEvent(side, event, 0));
  CUDA(cudaMemsetAsync(buffers.device, 0, 4, side));
  CHECK_CODE(cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureUnmatched);
  CHECK_CODE(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  CHECK_CODE(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  CHECK_CODE(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  cudaGetLastError();
  // The thread's own mode.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeGlobal);
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CUDA(cudaMalloc(&pointer, 4));
  CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaFree(pointer));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaEventDestroy(event));
  CUDA(cudaEventDestroy(elsewhere));
  CUDA(cudaStreamDestroy(side));
  CUDA(cudaStreamDestroy(blocking));
}

void memory_nodes(cudaStream_t stream) {
  Buffers buffers;
  cudaGraph_t graph;
  CUDA(cudaGraphCreate(&graph, 0));
  cudaMemAllocNodeParams allocation{};
  allocation.poolProps.allocType = cudaMemAllocationTypePinned;
  allocation.poolProps.location = {cudaMemLocationTypeDevice, 0};
  allocation.bytesize = kBytes;
  cudaGraphNode_t allocates, in, adds, frees;
  CUDA(cudaGraphAddMemAllocNode(&allocates, graph, nullptr, 0, &allocation));
  int *const memory = static_cast<int *>(allocation.dptr);
  CHECK(memory);
  CUDA(cudaGraphAddMemcpyNode1D(&in, graph, &allocates, 1, memory, buffers.host, kBytes,
                                cudaMemcpyHostToDevice));
  int value = 4, n = kN;
  void *arguments[] = {const_cast<int **>(&memory), &value, &n};
  const cudaKernelNodeParams adding = kernel_params(add, arguments);
  CUDA(cudaGraphAddKernelNode(&adds, graph, &in, 1, &adding));
  cudaGraph_t never;
  CHECK_CODE(cudaGraphClone(&never, graph), cudaErrorNotSupported);
  cudaGetLastError();

  // Without a free node, the program frees what each launch allocates.
  const cudaGraphExec_t exec = instantiate(graph);
  launch(exec, stream);
  int result;
  CUDA(cudaMemcpy(&result, memory + 9, sizeof result, cudaMemcpyDeviceToHost));
  CHECK(result == 9 + 4);
  std::uint64_t used = 0;
  CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
  CHECK(used == kBytes);
  CHECK_CODE(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
  cudaGetLastError();
  CUDA(cudaFreeAsync(memory, stream));
  launch(exec, stream);
  CUDA(cudaFree(memory));
  CHECK_CODE(cudaFree(memory), cudaErrorInvalidValue);
  cudaGetLastError();
  CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
  CHECK(used == 0);
  cudaGraphExec_t frees_itself;
  CUDA(cudaGraphInstantiate(&frees_itself, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  launch(frees_itself, stream);
  launch(frees_itself, stream);
  CUDA(cudaFree(memory));

  CUDA(cudaGraphAddMemFreeNode(&frees, graph, &adds, 1, memory));
  const cudaGraphExec_t complete = instantiate(graph);
  launch(complete, stream);
  launch(complete, stream);
  for (const cudaGraphExec_t one : {exec, frees_itself, complete})
    CUDA(cudaGraphExecDestroy(one));
  CUDA(cudaGraphDestroy(graph));
  CHECK_CODE(cudaMemset(memory, 0, 4), cudaErrorInvalidValue); // gone with its graphs
  cudaGetLastError();

  // Captured allocations.
  int *captured;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CUDA(cudaMallocAsync(&captured, kBytes, stream));
  CUDA(cudaMemsetAsync(captured, 0, kBytes, stream));
  add<<<4, 32, 0, stream>>>(captured, 6, kN);
  CUDA(cudaMemcpyAsync(buffers.device, captured, kBytes, cudaMemcpyDeviceToDevice, stream));
  CUDA(cudaFreeAsync(captured, stream));
  CUDA(cudaStreamEndCapture(stream, &graph));
  const cudaGraphExec_t last = instantiate(graph);
  launch(last, stream);
  launch(last, stream);
  CHECK(buffers.at(99) == 6);
  CUDA(cudaGraphExecDestroy(last));
  CUDA(cudaGraphDestroy(graph));
}

int main() {
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  explicit_graph(stream);
  fills_and_symbols(stream);
  captured_graph(stream);
  forbidden_calls(stream);
  memory_nodes(stream);
  CUDA(cudaStreamDestroy(stream));
}
