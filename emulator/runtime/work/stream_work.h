// Work that streams and graphs order: described by a call, performed at once or when a graph is launched.
#pragma once

#include "machine/block.h"
#include "runtime/observe/stream_order.h"
#include "runtime/work/cuda_api.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace ladder::runtime {

class Graph;
class GraphMemory;
class LaunchInProgress;

struct KernelWork {
  const void *function = nullptr; ///< the host's function or a handle
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  std::vector<std::uint8_t> params; ///< the kernel's parameter space
  bool cooperative = false;
  std::optional<machine::Dim3> cluster;
  bool overlaps_previous = false; ///< programmatic stream serialization
};
struct CopyWork {
  cudaMemcpy3DParms what;
};
struct FillWork {
  cudaMemsetParams what;
};
struct HostWork {
  cudaHostFn_t function;
  void *data;
};
struct GraphWork {
  std::shared_ptr<Graph> graph;
};
struct EmptyWork {};
struct WaitWork {
  cudaEvent_t event;
};
struct RecordWork {
  cudaEvent_t event;
};
struct AllocateWork {
  std::shared_ptr<GraphMemory> memory;
  cudaMemAllocNodeParams what;
};
struct FreeWork {
  std::shared_ptr<GraphMemory> memory;
};

using Work = std::variant<KernelWork, CopyWork, FillWork, HostWork, GraphWork, EmptyWork, WaitWork,
                          RecordWork, AllocateWork, FreeWork>;

cudaGraphNodeType type_of(const Work &work);

/// Copies the arguments of a launch. Throws CudaError for an unknown kernel and for missing arguments.
KernelWork kernel_work(const void *function, dim3 grid, dim3 block, void *const *arguments,
                       std::size_t shared_bytes);
/// Where each argument lies in `work.params`.
std::vector<void *> argument_pointers(KernelWork &work);
/// Applies the attributes that change what a launch does; the others are hints.
void set_attribute(KernelWork &work, const cudaLaunchAttribute &attribute);

CopyWork copy_work(void *destination, std::size_t destination_pitch, const void *source,
                   std::size_t source_pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind);
inline CopyWork copy_work(void *destination, const void *source, std::size_t bytes, cudaMemcpyKind kind) {
  return copy_work(destination, bytes, source, bytes, bytes, 1, kind);
}
/// Fills bytes.
FillWork fill_work(void *destination, std::size_t pitch, int value, std::size_t width, std::size_t height);

/// Performs a launch on a stream; returns what is left of it if it is suspended.
std::shared_ptr<LaunchInProgress> launch_or_suspend(const KernelWork &work, StreamId stream);
/// Performs work on a stream, to its end. Throws what the work throws.
void perform(const Work &work, StreamId stream);

} // namespace ladder::runtime
