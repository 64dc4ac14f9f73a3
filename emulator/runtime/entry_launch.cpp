// Launches.
#include "runtime/checking.h"
#include "runtime/entry.h"
#include "runtime/error_names.h"
#include "runtime/host_guard.h"
#include "runtime/kernels.h"
#include "runtime/registry.h"
#include "runtime/streams.h"

#include <cstring>
#include <vector>

using namespace ladder;
using namespace ladder::runtime;

namespace {

struct CallConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};

/// Pending configurations of `<<<>>>`: a stack, since an argument may itself launch.
thread_local std::vector<CallConfiguration> configurations;

machine::Dim3 dim(dim3 size) { return {size.x, size.y, size.z}; }

void launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
            cudaStream_t stream, bool cooperative, std::optional<machine::Dim3> cluster = {}) {
  const OnStream on_stream(stream_id(stream));
  RegisteredKernel &kernel = find_kernel(function);
  const KernelOnDevice on_device(kernel);
  LaunchRequest request;
  request.code = on_device.code();
  request.grid = dim(grid);
  request.block = dim(block);
  request.dynamic_shared_bytes = shared_bytes;
  request.dynamic_shared_limit = on_device.dynamic_shared_limit();
  request.cooperative = cooperative;
  request.cluster = cluster;
  request.allows_large_clusters = kernel.allows_large_clusters;
  const program::Function &entry = on_device.entry();
  request.params.resize(entry.parameter_bytes);
  require(arguments || entry.parameters.empty(), cudaErrorInvalidValue, "a launch without arguments");
  for (std::size_t i = 0; i < entry.parameters.size(); ++i) {
    const program::Parameter &parameter = entry.parameters[i];
    if (!parameter.bytes)
      continue;
    require(arguments[i], cudaErrorInvalidValue, "a launch with a null pointer for an argument");
    std::memcpy(request.params.data() + parameter.offset, arguments[i], parameter.bytes);
  }
  Device::instance().launch(request);
}

/// Records a launch's error: `<<<>>>` cannot return one.
cudaError_t noted(cudaError_t code) {
  if (Checking *const checking = Checking::active(); checking && code != cudaSuccess)
    checking->launch_failed(error_name(code));
  return code;
}

} // namespace

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
  return query([&] {
    require(!configurations.empty(), cudaErrorMissingConfiguration);
    const CallConfiguration last = configurations.back();
    configurations.pop_back();
    *grid = last.grid;
    *block = last.block;
    *shared_bytes = last.shared_bytes;
    *static_cast<cudaStream_t *>(stream) = last.stream;
  });
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host_function) {
  return query([&] { *kernel = reinterpret_cast<cudaKernel_t>(&find_kernel(host_function)); });
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return noted(on_device([&] { launch(kernel, grid, block, arguments, shared_bytes, stream, false); }));
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  return noted(on_device([&] { launch(function, grid, block, arguments, shared_bytes, stream, false); }));
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                        size_t shared_bytes, cudaStream_t stream) {
  return on_device([&] { launch(function, grid, block, arguments, shared_bytes, stream, true); });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
  return on_device([&] {
    require(config && (config->attrs || config->numAttrs == 0));
    bool cooperative = false;
    std::optional<machine::Dim3> cluster_shape;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const cudaLaunchAttribute &attribute = config->attrs[i];
      if (attribute.id == cudaLaunchAttributeCooperative)
        cooperative = attribute.val.cooperative != 0;
      const auto &cluster = attribute.val.clusterDim;
      if (attribute.id == cudaLaunchAttributeClusterDimension) {
        require(cluster.x && cluster.y && cluster.z, cudaErrorInvalidValue, "a cluster of no blocks");
        cluster_shape = {cluster.x, cluster.y, cluster.z};
      }
    }
    launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream,
           cooperative, cluster_shape);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  return on_device([&] {
    const StreamId id = stream_id(stream);
    require(function);
    if (Checking *const checking = Checking::active())
      checking->streams().host_waits(id); // before the function runs
    const ClosedDeviceMemory closed;
    function(data);
  });
}
