// A graph: nodes of work, and the order between them.
#pragma once

#include "runtime/work/stream_work.h"

#include <memory>
#include <span>
#include <vector>

namespace ladder::runtime {

struct GraphNode {
  GraphNode(Graph &graph, Work work, unsigned long long number)
      : graph(graph), work(std::move(work)), number(number) {}

  Graph &graph;
  Work work;
  const unsigned long long number; ///< in the order of creation; clones keep it
  std::vector<GraphNode *> before, after;
  std::vector<void *> arguments; ///< what cudaGraphKernelNodeGetParams has returned
  bool is_enabled = true;
  StreamId lane = 0; ///< where an instantiated graph runs it
};

class Graph {
public:
  Graph();
  ~Graph();
  Graph(const Graph &) = delete;

  /// Throws CudaError(cudaErrorInvalidValue) unless all of `before` are nodes of this graph.
  GraphNode &add(Work work, std::span<GraphNode *const> before);
  void remove(GraphNode &node);
  /// Throws CudaError(cudaErrorInvalidValue) for nodes of other graphs, and for an edge that exists.
  void connect(GraphNode &from, GraphNode &to);
  void disconnect(GraphNode &from, GraphNode &to);
  std::shared_ptr<Graph> clone() const;

  /// In the order of creation.
  std::vector<GraphNode *> nodes() const;
  /// Each node after those that it depends on. Throws CudaError(cudaErrorInvalidValue) for a cycle.
  std::vector<GraphNode *> in_order() const;
  /// The clone of `node`, in this graph or in one of its child graphs; nullptr if there is none.
  GraphNode *clone_of(const GraphNode &node) const;
  bool has_memory_nodes() const;

  /// Gives each node of an instantiated graph a lane: a chain of nodes shares one.
  void assign_lanes();
  /// Performs all nodes, ordered after the stream's work and before its next.
  void run(StreamId stream);

private:
  const unsigned long long id_;
  unsigned long long origin_ = 0; ///< the graph that this is a clone of
  unsigned long long next_ = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes_;
};

/// Makes the program own the graph, until destroy_graph.
cudaGraph_t own_graph(std::shared_ptr<Graph> graph);
/// The handle of a graph that a node owns.
cudaGraph_t child_handle(const std::shared_ptr<Graph> &graph);
inline cudaGraphNode_t handle_of(const GraphNode &node) {
  return reinterpret_cast<cudaGraphNode_t>(const_cast<GraphNode *>(&node));
}

// These throw CudaError(cudaErrorInvalidValue) for a handle of nothing that lives.
std::shared_ptr<Graph> find_graph(cudaGraph_t handle);
void destroy_graph(cudaGraph_t handle);
GraphNode &find_node(cudaGraphNode_t handle);
std::vector<GraphNode *> find_nodes(const cudaGraphNode_t *handles, std::size_t count);

} // namespace ladder::runtime
