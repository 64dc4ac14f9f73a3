#include "runtime/work/graph_nodes.h"

#include "runtime/work/graph_memory.h"

namespace ladder::runtime {

namespace {

/// Of the structures with the same members, for cudaGraphAddNode and for the functions of each type.
template <typename Params> KernelWork kernel_of(const Params &params) {
  require(!params.extra, cudaErrorNotSupported, "kernel arguments in `extra` are not emulated in graphs");
  return kernel_work(params.func, params.gridDim, params.blockDim, params.kernelParams,
                     params.sharedMemBytes);
}

template <typename Params> FillWork fill_of(const Params &params) {
  require(params.elementSize == 1 || params.elementSize == 2 || params.elementSize == 4);
  require(params.dst && params.height > 0);
  return {{.dst = params.dst,
           .pitch = params.pitch,
           .value = params.value,
           .elementSize = params.elementSize,
           .width = params.width,
           .height = params.height}};
}

template <typename Params> HostWork host_of(const Params &params) {
  require(params.fn);
  return {params.fn, params.userData};
}

template <typename Params> AllocateWork allocation_of(const Params &params) {
  require(params.poolProps.location.type == cudaMemLocationTypeDevice && params.poolProps.location.id == 0,
          cudaErrorNotSupported, "only memory of device 0 is emulated in graphs");
  AllocateWork work{GraphMemory::make(params.bytesize), {}};
  work.what.poolProps = params.poolProps;
  work.what.bytesize = params.bytesize;
  work.what.dptr = work.memory->pointer();
  return work;
}

} // namespace

Work work_of(const cudaKernelNodeParams *params) {
  require(params);
  return kernel_of(*params);
}

Work work_of(const cudaMemcpy3DParms *params) {
  require(params);
  return CopyWork{*params};
}

Work work_of(const cudaMemsetParams *params) {
  require(params);
  return fill_of(*params);
}

Work work_of(const cudaHostNodeParams *params) {
  require(params);
  return host_of(*params);
}

Work work_of(const cudaMemAllocNodeParams *params) {
  require(params);
  return allocation_of(*params);
}

Work free_of(void *pointer) {
  auto memory = GraphMemory::find(pointer);
  require(memory != nullptr, cudaErrorInvalidValue,
          "a free node of memory that no allocation node of a graph returned", sanitizer::Kind::bad_free);
  return FreeWork{std::move(memory)};
}

Work work_of(cudaGraphNodeParams *params) {
  require(params);
  switch (params->type) {
  case cudaGraphNodeTypeKernel:
    return kernel_of(params->kernel);
  case cudaGraphNodeTypeMemcpy:
    return CopyWork{params->memcpy.copyParams};
  case cudaGraphNodeTypeMemset:
    return fill_of(params->memset);
  case cudaGraphNodeTypeHost:
    return host_of(params->host);
  case cudaGraphNodeTypeGraph:
    return GraphWork{find_graph(params->graph.graph)->clone()};
  case cudaGraphNodeTypeEmpty:
    return EmptyWork{};
  case cudaGraphNodeTypeWaitEvent:
    return WaitWork{params->eventWait.event};
  case cudaGraphNodeTypeEventRecord:
    return RecordWork{params->eventRecord.event};
  case cudaGraphNodeTypeMemAlloc: {
    AllocateWork work = allocation_of(params->alloc);
    params->alloc.dptr = work.what.dptr;
    return work;
  }
  case cudaGraphNodeTypeMemFree:
    return free_of(params->free.dptr);
  default:
    throw CudaError(cudaErrorNotSupported,
                    "nodes of graphs with conditions or external semaphores are not emulated");
  }
}

void replace(GraphNode &node, Work work) {
  require(node.work.index() == work.index(), cudaErrorInvalidValue, "the node is of another type");
  node.work = std::move(work);
}

void replace_kernel(GraphNode &node, const cudaKernelNodeParams *params) {
  const KernelWork &old = work_in<KernelWork>(node);
  Work work = work_of(params);
  std::get<KernelWork>(work).cooperative = old.cooperative;
  std::get<KernelWork>(work).cluster = old.cluster;
  replace(node, std::move(work));
}

void require_plain_edges(const cudaGraphEdgeData *edges, std::size_t count) {
  for (std::size_t i = 0; edges && i < count; ++i)
    require(edges[i].type == cudaGraphDependencyTypeDefault && edges[i].from_port == 0 &&
                edges[i].to_port == 0,
            cudaErrorNotSupported, "edges of programmatic dependent launches are not emulated");
}

} // namespace ladder::runtime
