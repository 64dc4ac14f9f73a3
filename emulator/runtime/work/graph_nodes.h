// The parameters of nodes, as the program gives them.
#pragma once

#include "runtime/work/entry.h"
#include "runtime/work/graph.h"

namespace ladder::runtime {

// Each throws CudaError for what is invalid or not emulated.
Work work_of(const cudaKernelNodeParams *params);
Work work_of(const cudaMemcpy3DParms *params);
Work work_of(const cudaMemsetParams *params);
Work work_of(const cudaHostNodeParams *params);
Work work_of(const cudaMemAllocNodeParams *params);
Work free_of(void *pointer);
/// Of any type. Sets the address that an allocation gets.
Work work_of(cudaGraphNodeParams *params);

/// The node's work, which must be of this type.
template <typename One> One &work_in(GraphNode &node) {
  One *const work = std::get_if<One>(&node.work);
  require(work, cudaErrorInvalidValue, "the node is of another type");
  return *work;
}

/// Replaces the work of a node by work of the same type.
void replace(GraphNode &node, Work work);

/// Replaces a kernel's parameters. What these do not have stays: the cluster's size, and whether the launch
/// is cooperative.
void replace_kernel(GraphNode &node, const cudaKernelNodeParams *params);

/// Throws CudaError(cudaErrorNotSupported) for edges of programmatic launches.
void require_plain_edges(const cudaGraphEdgeData *edges, std::size_t count);

} // namespace ladder::runtime
