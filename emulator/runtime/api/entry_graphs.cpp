// Graphs: their nodes and edges.
#include "runtime/work/graph_memory.h"
#include "runtime/work/graph_nodes.h"
#include "runtime/work/streams.h"

#include <algorithm>
#include <cstring>

using namespace ladder::runtime;

namespace {

/// Adds a node; `work` is called once the graph is known.
template <typename MakeWork>
cudaError_t add(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
                MakeWork work, const char *call = __builtin_FUNCTION()) {
  return on_device(
      [&] {
        require(node);
        const auto target = find_graph(graph);
        const auto before = find_nodes(dependencies, count);
        *node = handle_of(target->add(work(), before));
      },
      call);
}

/// Returns a list in the manner of CUDA: `count` has its room, or without a list gets its length.
template <typename Handle>
void list(const std::vector<Handle> &all, Handle *handles, cudaGraphEdgeData *edges, size_t *count) {
  require(count);
  if (!handles) {
    *count = all.size();
    return;
  }
  const size_t shown = std::min(*count, all.size());
  std::copy_n(all.begin(), shown, handles);
  std::fill(handles + shown, handles + *count, Handle{});
  if (edges)
    std::fill_n(edges, *count, cudaGraphEdgeData{});
  *count = shown;
}

std::vector<cudaGraphNode_t> handles_of(const std::vector<GraphNode *> &nodes) {
  std::vector<cudaGraphNode_t> handles;
  for (const GraphNode *node : nodes)
    handles.push_back(handle_of(*node));
  return handles;
}

std::vector<GraphNode *> roots(const Graph &graph) {
  std::vector<GraphNode *> nodes = graph.nodes();
  std::erase_if(nodes, [](const GraphNode *node) { return !node->before.empty(); });
  return nodes;
}

template <typename Change>
cudaError_t change_edges(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                         const cudaGraphEdgeData *edges, size_t count, Change change,
                         const char *call = __builtin_FUNCTION()) {
  return on_device(
      [&] {
        require_plain_edges(edges, count);
        const auto target = find_graph(graph);
        const auto sources = find_nodes(from, count), sinks = find_nodes(to, count);
        for (size_t i = 0; i < count; ++i)
          change(*target, *sources[i], *sinks[i]);
      },
      call);
}

} // namespace

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
  return on_device([&] {
    require(graph && flags == 0);
    *graph = own_graph(std::make_shared<Graph>());
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return on_device([&] { destroy_graph(graph); });
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph) {
  return on_device([&] {
    require(clone);
    const auto original = find_graph(graph);
    require(!original->has_memory_nodes(), cudaErrorNotSupported,
            "a graph with allocation or free nodes cannot be cloned");
    *clone = own_graph(original->clone());
  });
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *node, cudaGraphNode_t original, cudaGraph_t clone) {
  return on_device([&] {
    const GraphNode *const found = find_graph(clone)->clone_of(find_node(original));
    require(node && found);
    *node = handle_of(*found);
  });
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count,
                                   const cudaKernelNodeParams *params) {
  return add(node, graph, dependencies, count, [&] { return work_of(params); });
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count,
                                   const cudaMemcpy3DParms *params) {
  return add(node, graph, dependencies, count, [&] { return work_of(params); });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
                                     const cudaGraphNode_t *dependencies, size_t count, void *destination,
                                     const void *source, size_t bytes, cudaMemcpyKind kind) {
  return add(node, graph, dependencies, count,
             [&]() -> Work { return copy_work(destination, source, bytes, kind); });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *dependencies, size_t count,
                                   const cudaMemsetParams *params) {
  return add(node, graph, dependencies, count, [&] { return work_of(params); });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                 const cudaGraphNode_t *dependencies, size_t count,
                                 const cudaHostNodeParams *params) {
  return add(node, graph, dependencies, count, [&] { return work_of(params); });
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                       const cudaGraphNode_t *dependencies, size_t count, cudaGraph_t child) {
  return add(node, graph, dependencies, count,
             [&]() -> Work { return GraphWork{find_graph(child)->clone()}; });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                  const cudaGraphNode_t *dependencies, size_t count) {
  return add(node, graph, dependencies, count, [&]() -> Work { return EmptyWork{}; });
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                        const cudaGraphNode_t *dependencies, size_t count,
                                        cudaEvent_t event) {
  return add(node, graph, dependencies, count, [&]() -> Work {
    require_event(event);
    return RecordWork{event};
  });
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                      const cudaGraphNode_t *dependencies, size_t count, cudaEvent_t event) {
  return add(node, graph, dependencies, count, [&]() -> Work {
    require_event(event);
    return WaitWork{event};
  });
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                     const cudaGraphNode_t *dependencies, size_t count,
                                     cudaMemAllocNodeParams *params) {
  return add(node, graph, dependencies, count, [&] {
    Work work = work_of(static_cast<const cudaMemAllocNodeParams *>(params));
    params->dptr = std::get<AllocateWork>(work).what.dptr;
    return work;
  });
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                    const cudaGraphNode_t *dependencies, size_t count, void *pointer) {
  return add(node, graph, dependencies, count, [&] { return free_of(pointer); });
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                             const cudaGraphEdgeData *edges, size_t count, cudaGraphNodeParams *params) {
  return add(node, graph, dependencies, count, [&] {
    require_plain_edges(edges, count);
    return work_of(params);
  });
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return on_device([&] {
    GraphNode &found = find_node(node);
    found.graph.remove(found);
  });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                     size_t count) {
  return change_edges(graph, from, to, edges, count,
                      [](Graph &target, GraphNode &a, GraphNode &b) { target.connect(a, b); });
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                        size_t count) {
  return change_edges(graph, from, to, edges, count,
                      [](Graph &target, GraphNode &a, GraphNode &b) { target.disconnect(a, b); });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType *type) {
  return on_device([&] { set(type, type_of(find_node(node).work)); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  return on_device([&] { list(handles_of(find_graph(graph)->nodes()), nodes, nullptr, count); });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  return on_device([&] { list(handles_of(roots(*find_graph(graph))), nodes, nullptr, count); });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
                                         cudaGraphEdgeData *edges, size_t *count) {
  return on_device([&] { list(handles_of(find_node(node).before), dependencies, edges, count); });
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *dependents,
                                           cudaGraphEdgeData *edges, size_t *count) {
  return on_device([&] { list(handles_of(find_node(node).after), dependents, edges, count); });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              cudaGraphEdgeData *edges, size_t *count) {
  return on_device([&] {
    std::vector<cudaGraphNode_t> sources, sinks;
    for (const GraphNode *node : find_graph(graph)->nodes())
      for (const GraphNode *earlier : node->before) {
        sources.push_back(handle_of(*earlier));
        sinks.push_back(handle_of(*node));
      }
    require(count && !from == !to);
    size_t room = *count;
    list(sources, from, edges, count);
    list(sinks, to, nullptr, from ? &room : count);
  });
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *graph) {
  return on_device([&] { set(graph, child_handle(work_in<GraphWork>(find_node(node)).graph)); });
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams *params) {
  return on_device([&] {
    require(params);
    GraphNode &found = find_node(node);
    KernelWork &work = work_in<KernelWork>(found);
    found.arguments = argument_pointers(work);
    *params = {const_cast<void *>(work.function),
               work.grid,
               work.block,
               unsigned(work.shared_bytes),
               found.arguments.data(),
               nullptr};
  });
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams *params) {
  return on_device([&] { replace_kernel(find_node(node), params); });
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            const cudaLaunchAttributeValue *value) {
  return on_device([&] {
    require(value);
    cudaLaunchAttribute attribute{};
    attribute.id = id;
    attribute.val = *value;
    set_attribute(work_in<KernelWork>(find_node(node)), attribute);
  });
}

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            cudaLaunchAttributeValue *value) {
  return on_device([&] {
    require(value);
    const KernelWork &work = work_in<KernelWork>(find_node(node));
    std::memset(value, 0, sizeof *value);
    if (id == cudaLaunchAttributeCooperative)
      value->cooperative = work.cooperative;
    if (id == cudaLaunchAttributeClusterDimension && work.cluster)
      value->clusterDim = {work.cluster->x, work.cluster->y, work.cluster->z};
  });
}

cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t destination, cudaGraphNode_t source) {
  return on_device([&] {
    KernelWork &to = work_in<KernelWork>(find_node(destination));
    const KernelWork &from = work_in<KernelWork>(find_node(source));
    to.cooperative = from.cooperative;
    to.cluster = from.cluster;
  });
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms *params) {
  return on_device([&] { set(params, work_in<CopyWork>(find_node(node)).what); });
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms *params) {
  return on_device([&] { replace(find_node(node), work_of(params)); });
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *destination, const void *source,
                                           size_t bytes, cudaMemcpyKind kind) {
  return on_device([&] { replace(find_node(node), copy_work(destination, source, bytes, kind)); });
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams *params) {
  return on_device([&] { set(params, work_in<FillWork>(find_node(node)).what); });
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams *params) {
  return on_device([&] { replace(find_node(node), work_of(params)); });
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams *params) {
  return on_device([&] {
    const HostWork &work = work_in<HostWork>(find_node(node));
    set(params, {work.function, work.data});
  });
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams *params) {
  return on_device([&] { replace(find_node(node), work_of(params)); });
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event) {
  return on_device([&] { set(event, work_in<RecordWork>(find_node(node)).event); });
}

cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return on_device([&] {
    require_event(event);
    replace(find_node(node), RecordWork{event});
  });
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event) {
  return on_device([&] { set(event, work_in<WaitWork>(find_node(node)).event); });
}

cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return on_device([&] {
    require_event(event);
    replace(find_node(node), WaitWork{event});
  });
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams *params) {
  return on_device([&] { set(params, work_in<AllocateWork>(find_node(node)).what); });
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void *pointer) {
  return on_device([&] {
    require(pointer);
    *static_cast<void **>(pointer) = work_in<FreeWork>(find_node(node)).memory->pointer();
  });
}

cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams *params) {
  return on_device([&] { replace(find_node(node), work_of(params)); });
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void *value) {
  return on_device([&] {
    require(device == 0, cudaErrorInvalidDevice);
    require(value);
    const bool is_current =
        attribute == cudaGraphMemAttrUsedMemCurrent || attribute == cudaGraphMemAttrReservedMemCurrent;
    *static_cast<std::uint64_t *>(value) = is_current ? GraphMemory::used() : GraphMemory::most_used();
  });
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void *value) {
  return on_device([&] {
    require(device == 0, cudaErrorInvalidDevice);
    require(value && *static_cast<std::uint64_t *>(value) == 0 &&
            (attribute == cudaGraphMemAttrUsedMemHigh || attribute == cudaGraphMemAttrReservedMemHigh));
    GraphMemory::reset_most_used();
  });
}

cudaError_t cudaDeviceGraphMemTrim(int device) {
  return on_device([&] { require(device == 0, cudaErrorInvalidDevice); });
}
