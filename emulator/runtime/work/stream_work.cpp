#include "runtime/work/stream_work.h"

#include "runtime/observe/checking.h"
#include "runtime/observe/host_guard.h"
#include "runtime/work/child_launches.h"
#include "runtime/work/copies.h"
#include "runtime/work/entry.h"
#include "runtime/work/graph.h"
#include "runtime/work/graph_memory.h"
#include "runtime/work/kernels.h"
#include "runtime/work/streams.h"

#include <array>
#include <cstring>

namespace ladder::runtime {

namespace {

machine::Dim3 dim(dim3 size) { return {size.x, size.y, size.z}; }

/// A request without a size.
LaunchRequest request_for(const RegisteredKernel &kernel) {
  const KernelOnDevice on_device(kernel);
  LaunchRequest request;
  request.code = on_device.code();
  request.dynamic_shared_limit = on_device.dynamic_shared_limit();
  request.allows_large_clusters = kernel.allows_large_clusters;
  allow_children(request, [binary = kernel.binary](const std::string &name) {
    const RegisteredKernel *const child = Registry::instance().kernel(binary, name);
    require(child, cudaErrorInvalidDeviceFunction);
    return request_for(*child);
  });
  return request;
}

LaunchRequest request_of(const KernelWork &work) {
  LaunchRequest request = request_for(find_kernel(work.function));
  request.grid = dim(work.grid);
  request.block = dim(work.block);
  request.dynamic_shared_bytes = work.shared_bytes;
  request.cooperative = work.cooperative;
  request.cluster = work.cluster;
  request.overlaps_previous = work.overlaps_previous;
  request.params = work.params;
  return request;
}

void perform_on(const KernelWork &work, StreamId stream) {
  const OnStream on_stream(stream);
  Device::instance().launch(request_of(work));
}

void perform_on(const CopyWork &work, StreamId stream) {
  const OnStream on_stream(stream);
  copy(work.what);
}

void perform_on(const FillWork &work, StreamId stream) {
  const OnStream on_stream(stream);
  fill(work.what);
}

void perform_on(const HostWork &work, StreamId stream) {
  if (Checking *const checking = Checking::active())
    checking->streams().host_waits(stream); // before the function runs
  const ClosedDeviceMemory closed;
  work.function(work.data);
}

void perform_on(const GraphWork &work, StreamId stream) { work.graph->run(stream); }
void perform_on(const EmptyWork &, StreamId) {}
void perform_on(const WaitWork &work, StreamId stream) { wait_for_event(stream, work.event); }
void perform_on(const RecordWork &work, StreamId stream) { record_event(work.event, stream); }
void perform_on(const AllocateWork &work, StreamId) { work.memory->allocate(); }
void perform_on(const FreeWork &work, StreamId) { work.memory->free(); }

} // namespace

cudaGraphNodeType type_of(const Work &work) {
  constexpr std::array types = {cudaGraphNodeTypeKernel,    cudaGraphNodeTypeMemcpy,
                                cudaGraphNodeTypeMemset,    cudaGraphNodeTypeHost,
                                cudaGraphNodeTypeGraph,     cudaGraphNodeTypeEmpty,
                                cudaGraphNodeTypeWaitEvent, cudaGraphNodeTypeEventRecord,
                                cudaGraphNodeTypeMemAlloc,  cudaGraphNodeTypeMemFree};
  static_assert(types.size() == std::variant_size_v<Work>);
  return types[work.index()];
}

KernelWork kernel_work(const void *function, dim3 grid, dim3 block, void *const *arguments,
                       std::size_t shared_bytes) {
  KernelWork work;
  work.function = function;
  work.grid = grid;
  work.block = block;
  work.shared_bytes = shared_bytes;
  const KernelOnDevice on_device(find_kernel(function));
  const program::Function &entry = on_device.entry();
  require(arguments || entry.parameters.empty(), cudaErrorInvalidValue, "a launch without arguments");
  work.params.resize(entry.parameter_bytes);
  for (std::size_t i = 0; i < entry.parameters.size(); ++i) {
    const program::Parameter &parameter = entry.parameters[i];
    if (!parameter.bytes)
      continue;
    require(arguments[i], cudaErrorInvalidValue, "a launch with a null pointer for an argument");
    std::memcpy(work.params.data() + parameter.offset, arguments[i], parameter.bytes);
  }
  return work;
}

std::vector<void *> argument_pointers(KernelWork &work) {
  std::vector<void *> pointers;
  const KernelOnDevice on_device(find_kernel(work.function));
  for (const program::Parameter &parameter : on_device.entry().parameters)
    pointers.push_back(work.params.data() + parameter.offset);
  return pointers;
}

void set_attribute(KernelWork &work, const cudaLaunchAttribute &attribute) {
  if (attribute.id == cudaLaunchAttributeCooperative)
    work.cooperative = attribute.val.cooperative != 0;
  if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
    work.overlaps_previous = attribute.val.programmaticStreamSerializationAllowed != 0;
  if (attribute.id == cudaLaunchAttributeClusterDimension) {
    const auto &cluster = attribute.val.clusterDim;
    require(cluster.x && cluster.y && cluster.z, cudaErrorInvalidValue, "a cluster of no blocks");
    work.cluster = {cluster.x, cluster.y, cluster.z};
  }
}

CopyWork copy_work(void *destination, std::size_t destination_pitch, const void *source,
                   std::size_t source_pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  CopyWork work{};
  work.what.dstPtr = {destination, destination_pitch, width, height};
  work.what.srcPtr = {const_cast<void *>(source), source_pitch, width, height};
  work.what.extent = {width, height, 1};
  work.what.kind = kind;
  return work;
}

FillWork fill_work(void *destination, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  return {{.dst = destination,
           .pitch = pitch,
           .value = unsigned(value),
           .elementSize = 1,
           .width = width,
           .height = height}};
}

std::shared_ptr<LaunchInProgress> launch_or_suspend(const KernelWork &work, StreamId stream) {
  const OnStream on_stream(stream);
  return Device::instance().launch_or_suspend(request_of(work));
}

void perform(const Work &work, StreamId stream) {
  std::visit([&](const auto &one) { perform_on(one, stream); }, work);
}

} // namespace ladder::runtime
