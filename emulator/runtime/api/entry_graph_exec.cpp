// Instantiated graphs: launches and changes.
#include "runtime/work/capture.h"
#include "runtime/work/device.h"
#include "runtime/work/graph_memory.h"
#include "runtime/work/graph_nodes.h"
#include "runtime/work/streams.h"

#include <map>
#include <mutex>

using namespace ladder::runtime;

namespace {

/// A clone of the graph as it was; launches of it run one after another.
struct Instance {
  std::shared_ptr<Graph> graph;
  unsigned long long flags;
  std::mutex running;
};

struct Instances {
  std::mutex mutex;
  std::map<cudaGraphExec_t, std::shared_ptr<Instance>> live;
};
// Never destroyed, as graphs are.
auto &instances = *new Instances;

std::shared_ptr<Instance> find_instance(cudaGraphExec_t handle) {
  const std::lock_guard lock(instances.mutex);
  const auto found = instances.live.find(handle);
  require(found != instances.live.end(), cudaErrorInvalidValue, "there is no such instantiated graph");
  return found->second;
}

void instantiate(cudaGraphExec_t *handle, cudaGraph_t graph, unsigned long long flags) {
  require(handle);
  require((flags & cudaGraphInstantiateFlagDeviceLaunch) == 0, cudaErrorNotSupported,
          "graphs that kernels launch are not emulated");
  auto instance = std::make_shared<Instance>();
  instance->graph = find_graph(graph)->clone();
  instance->graph->assign_lanes();
  instance->flags = flags;
  const std::lock_guard lock(instances.mutex);
  *handle = reinterpret_cast<cudaGraphExec_t>(instance.get());
  instances.live[*handle] = std::move(instance);
}

/// The node of an instantiated graph that a node of its graph has become.
GraphNode &node_in(cudaGraphExec_t handle, cudaGraphNode_t node) {
  GraphNode *const found = find_instance(handle)->graph->clone_of(find_node(node));
  require(found, cudaErrorInvalidValue, "the graph was instantiated without this node");
  return *found;
}

template <typename MakeWork>
cudaError_t replace_in(cudaGraphExec_t handle, cudaGraphNode_t node, MakeWork work,
                       const char *call = __builtin_FUNCTION()) {
  return on_device([&] { replace(node_in(handle, node), work()); }, call);
}

/// Frees what the last launch allocated and nothing has freed.
void free_memory(const Graph &graph) {
  for (const GraphNode *node : graph.nodes()) {
    const auto *const allocation = std::get_if<AllocateWork>(&node->work);
    if (allocation && allocation->memory->is_in_use())
      allocation->memory->free();
  }
}

/// What prevents an update, and the node where.
std::pair<cudaGraphExecUpdateResult, const GraphNode *> difference(const std::vector<GraphNode *> &own,
                                                                   const std::vector<GraphNode *> &wanted) {
  if (own.size() != wanted.size())
    return {cudaGraphExecUpdateErrorTopologyChanged, nullptr};
  std::map<const GraphNode *, const GraphNode *> twins;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const GraphNode &mine = *own[i], &other = *wanted[i];
    twins[&other] = &mine;
    if (mine.work.index() != other.work.index())
      return {cudaGraphExecUpdateErrorNodeTypeChanged, &other};
    if (const auto *const child = std::get_if<GraphWork>(&other.work)) {
      const auto &own_child = *std::get<GraphWork>(mine.work).graph;
      if (const auto inner = difference(own_child.in_order(), child->graph->in_order()); inner.second)
        return inner;
    }
    if (mine.before.size() != other.before.size())
      return {cudaGraphExecUpdateErrorTopologyChanged, &other};
    for (std::size_t j = 0; j < mine.before.size(); ++j)
      if (twins[other.before[j]] != mine.before[j])
        return {cudaGraphExecUpdateErrorTopologyChanged, &other};
  }
  return {cudaGraphExecUpdateSuccess, nullptr};
}

void update(const Graph &own, const Graph &wanted, cudaGraphExecUpdateResultInfo &info) {
  const auto to = own.in_order(), from = wanted.in_order();
  const auto [result, node] = difference(to, from);
  info.result = result;
  info.errorNode = node ? handle_of(*node) : nullptr;
  require(result == cudaGraphExecUpdateSuccess, cudaErrorGraphExecUpdateFailure);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (const auto *const child = std::get_if<GraphWork>(&from[i]->work))
      update(*std::get<GraphWork>(to[i]->work).graph, *child->graph, info);
    else
      to[i]->work = from[i]->work;
  }
}

} // namespace

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return on_device([&] { instantiate(exec, graph, flags); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  return on_device([&] { instantiate(exec, graph, flags); });
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *params) {
  return on_device([&] {
    require(params);
    params->errNode_out = nullptr;
    params->result_out = cudaGraphInstantiateError;
    instantiate(exec, graph, params->flags & ~(unsigned long long)(cudaGraphInstantiateFlagUpload));
    params->result_out = cudaGraphInstantiateSuccess;
  });
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long *flags) {
  return on_device([&] { set(flags, find_instance(exec)->flags); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return on_device([&] {
    const auto last = find_instance(exec); // destroyed after the lock is released
    const std::lock_guard lock(instances.mutex);
    instances.live.erase(exec);
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return on_device([&] {
    find_instance(exec);
    require_stream(stream);
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return on_device([&] {
    const auto instance = find_instance(exec);
    const StreamId id = stream_id(stream);
    if (capture(id, [&]() -> Work { return GraphWork{instance->graph->clone()}; }))
      return;
    const std::lock_guard lock(instance->running);
    if (instance->flags & cudaGraphInstantiateFlagAutoFreeOnLaunch)
      free_memory(*instance->graph);
    PendingWork::instance().wait_for(stream);
    instance->graph->run(id);
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info) {
  return on_device([&] {
    require(info);
    *info = {};
    info->result = cudaGraphExecUpdateError;
    update(*find_instance(exec)->graph, *find_graph(graph), *info);
  });
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams *params) {
  return on_device([&] { replace_kernel(node_in(exec, node), params); });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms *params) {
  return replace_in(exec, node, [&] { return work_of(params); });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void *destination,
                                               const void *source, size_t bytes, cudaMemcpyKind kind) {
  return replace_in(exec, node, [&] { return copy_work(destination, source, bytes, kind); });
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams *params) {
  return on_device([&] {
    GraphNode &found = node_in(exec, node);
    const cudaMemsetParams &old = work_in<FillWork>(found).what;
    Work work = work_of(params);
    require(params->height == old.height, cudaErrorInvalidValue, "an update changes a fill's height");
    require(old.height == 1 || (params->width == old.width && params->elementSize == old.elementSize &&
                                params->pitch == old.pitch),
            cudaErrorInvalidValue, "an update changes the size of a fill of several rows");
    replace(found, std::move(work));
  });
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                           const cudaHostNodeParams *params) {
  return replace_in(exec, node, [&] { return work_of(params); });
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                 cudaGraph_t child) {
  return on_device([&] {
    cudaGraphExecUpdateResultInfo info{};
    update(*work_in<GraphWork>(node_in(exec, node)).graph, *find_graph(child), info);
  });
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                 cudaEvent_t event) {
  return replace_in(exec, node, [&] {
    require_event(event);
    return RecordWork{event};
  });
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node,
                                               cudaEvent_t event) {
  return replace_in(exec, node, [&] {
    require_event(event);
    return WaitWork{event};
  });
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                       cudaGraphNodeParams *params) {
  return replace_in(exec, node, [&] { return work_of(params); });
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned is_enabled) {
  return on_device([&] {
    GraphNode &found = node_in(exec, node);
    const cudaGraphNodeType type = type_of(found.work);
    require(type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy ||
                type == cudaGraphNodeTypeMemset,
            cudaErrorInvalidValue, "only nodes of kernels, copies and fills can be disabled");
    found.is_enabled = is_enabled != 0;
  });
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned *is_enabled) {
  return on_device([&] { set(is_enabled, node_in(exec, node).is_enabled); });
}
