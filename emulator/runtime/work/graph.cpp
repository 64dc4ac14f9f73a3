#include "runtime/work/graph.h"

#include "runtime/observe/checking.h"
#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_set>

namespace ladder::runtime {

namespace {

struct Live {
  std::mutex mutex;
  std::map<const void *, std::shared_ptr<Graph>> graphs; ///< by handle
  std::map<const void *, std::weak_ptr<Graph>> children; ///< graphs that a node owns
  std::unordered_set<const void *> nodes;
};
// Never destroyed: programs destroy graphs in static destructors of their own.
auto &live = *new Live;
std::atomic<unsigned long long> next_graph_id{1};

bool contains(const std::vector<GraphNode *> &nodes, const GraphNode *node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

std::shared_ptr<Graph> child_of(const GraphNode &node) {
  const auto *const child = std::get_if<GraphWork>(&node.work);
  return child ? child->graph : nullptr;
}

/// Node lists are in the order of creation, which memory addresses are not.
void sort(std::vector<GraphNode *> &nodes) {
  std::sort(nodes.begin(), nodes.end(), [](auto *a, auto *b) { return a->number < b->number; });
}

} // namespace

Graph::Graph() : id_(next_graph_id++) {}

Graph::~Graph() {
  const std::lock_guard lock(live.mutex);
  for (const auto &node : nodes_)
    live.nodes.erase(node.get());
}

GraphNode &Graph::add(Work work, std::span<GraphNode *const> before) {
  for (const GraphNode *node : before)
    require(&node->graph == this, cudaErrorInvalidValue, "a dependency is a node of another graph");
  nodes_.push_back(std::make_unique<GraphNode>(*this, std::move(work), next_++));
  GraphNode &node = *nodes_.back();
  {
    const std::lock_guard lock(live.mutex);
    live.nodes.insert(&node);
  }
  for (GraphNode *earlier : before)
    if (!contains(node.before, earlier))
      connect(*earlier, node);
  return node;
}

void Graph::remove(GraphNode &node) {
  for (GraphNode *other : node.before)
    std::erase(other->after, &node);
  for (GraphNode *other : node.after)
    std::erase(other->before, &node);
  {
    const std::lock_guard lock(live.mutex);
    live.nodes.erase(&node);
  }
  std::erase_if(nodes_, [&](const auto &one) { return one.get() == &node; });
}

void Graph::connect(GraphNode &from, GraphNode &to) {
  require(&from.graph == this && &to.graph == this && &from != &to);
  require(!contains(to.before, &from), cudaErrorInvalidValue, "the dependency exists already");
  to.before.push_back(&from);
  from.after.push_back(&to);
  sort(to.before);
  sort(from.after);
}

void Graph::disconnect(GraphNode &from, GraphNode &to) {
  require(contains(to.before, &from), cudaErrorInvalidValue, "there is no such dependency");
  std::erase(to.before, &from);
  std::erase(from.after, &to);
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  copy->origin_ = id_;
  std::map<const GraphNode *, GraphNode *> twins;
  for (const auto &node : nodes_) {
    copy->next_ = node->number;
    Work work = node->work;
    if (const auto child = child_of(*node))
      work = GraphWork{child->clone()};
    GraphNode &twin = copy->add(std::move(work), {});
    twin.is_enabled = node->is_enabled;
    twins[node.get()] = &twin;
  }
  copy->next_ = next_;
  for (const auto &node : nodes_)
    for (const GraphNode *earlier : node->before)
      copy->connect(*twins.at(earlier), *twins.at(node.get()));
  return copy;
}

std::vector<GraphNode *> Graph::nodes() const {
  std::vector<GraphNode *> all;
  for (const auto &node : nodes_)
    all.push_back(node.get());
  return all;
}

std::vector<GraphNode *> Graph::in_order() const {
  std::map<const GraphNode *, std::size_t> waits_for;
  std::vector<GraphNode *> order;
  for (const auto &node : nodes_)
    if (!(waits_for[node.get()] = node->before.size()))
      order.push_back(node.get());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const GraphNode *const done = order[i];
    for (GraphNode *later : done->after)
      if (--waits_for[later] == 0)
        order.push_back(later);
  }
  require(order.size() == nodes_.size(), cudaErrorInvalidValue, "the graph has a cycle");
  return order;
}

GraphNode *Graph::clone_of(const GraphNode &node) const {
  for (const auto &own : nodes_) {
    if (origin_ == node.graph.id_ && own->number == node.number)
      return own.get();
    if (const auto child = child_of(*own))
      if (GraphNode *const found = child->clone_of(node))
        return found;
  }
  return nullptr;
}

bool Graph::has_memory_nodes() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const auto &node) {
    const auto child = child_of(*node);
    return std::holds_alternative<AllocateWork>(node->work) || std::holds_alternative<FreeWork>(node->work) ||
           (child && child->has_memory_nodes());
  });
}

void Graph::assign_lanes() {
  for (GraphNode *const node : in_order()) {
    // A lane goes on with the first of the nodes that depend on its last.
    const auto chain = std::find_if(node->before.begin(), node->before.end(),
                                    [&](auto *earlier) { return earlier->after.front() == node; });
    node->lane = chain == node->before.end() ? new_lane() : (*chain)->lane;
    if (const auto child = child_of(*node))
      child->assign_lanes();
  }
}

void Graph::run(StreamId stream) {
  Checking *const checking = Checking::active();
  StreamOrder *const order = checking ? &checking->streams() : nullptr;
  if (order)
    order->record_event(this, stream);
  for (GraphNode *const node : in_order()) {
    if (order) {
      order->wait_event(node->lane, this);
      for (const GraphNode *earlier : node->before)
        order->wait_event(node->lane, earlier);
    }
    if (node->is_enabled)
      perform(node->work, node->lane);
    if (order)
      order->record_event(node, node->lane);
  }
  if (order)
    for (const auto &node : nodes_)
      order->wait_event(stream, node.get());
}

std::shared_ptr<Graph> find_graph(cudaGraph_t handle) {
  const std::lock_guard lock(live.mutex);
  if (const auto found = live.graphs.find(handle); found != live.graphs.end())
    return found->second;
  const auto child = live.children.find(handle);
  const auto graph = child == live.children.end() ? nullptr : child->second.lock();
  require(graph != nullptr, cudaErrorInvalidValue, "there is no such graph");
  return graph;
}

GraphNode &find_node(cudaGraphNode_t handle) {
  const std::lock_guard lock(live.mutex);
  require(live.nodes.contains(handle), cudaErrorInvalidValue, "there is no such node of a graph");
  return *reinterpret_cast<GraphNode *>(handle);
}

std::vector<GraphNode *> find_nodes(const cudaGraphNode_t *handles, std::size_t count) {
  require(handles || count == 0);
  std::vector<GraphNode *> nodes;
  for (std::size_t i = 0; i < count; ++i)
    nodes.push_back(&find_node(handles[i]));
  return nodes;
}

cudaGraph_t own_graph(std::shared_ptr<Graph> graph) {
  const std::lock_guard lock(live.mutex);
  Graph *const address = graph.get();
  live.graphs[address] = std::move(graph);
  return reinterpret_cast<cudaGraph_t>(address);
}

cudaGraph_t child_handle(const std::shared_ptr<Graph> &graph) {
  const std::lock_guard lock(live.mutex);
  live.children[graph.get()] = graph;
  return reinterpret_cast<cudaGraph_t>(graph.get());
}

void destroy_graph(cudaGraph_t handle) {
  std::shared_ptr<Graph> last; // destroyed after the lock is released
  const std::lock_guard lock(live.mutex);
  const auto found = live.graphs.find(handle);
  require(found != live.graphs.end(), cudaErrorInvalidValue, "there is no such graph");
  last = std::move(found->second);
  live.graphs.erase(found);
}

} // namespace ladder::runtime
