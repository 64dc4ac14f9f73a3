// Launches.
#include "runtime/observe/checking.h"
#include "runtime/work/capture.h"
#include "runtime/work/entry.h"
#include "runtime/work/error_names.h"
#include "runtime/work/kernels.h"
#include "runtime/work/streams.h"

#include <functional>
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

/// Records a launch's error: `<<<>>>` cannot return one.
cudaError_t noted(cudaError_t code) {
  if (Checking *const checking = Checking::active(); checking && code != cudaSuccess)
    checking->launch_failed(error_name(code));
  return code;
}

/// A GPU does not wait for the kernel, so a fault that breaks the device is an error of later calls alone.
void issue(const KernelWork &work, cudaStream_t stream) {
  try {
    PendingWork::instance().issue(work, stream);
  } catch (const machine::FaultError &error) {
    if (!Device::instance().broken())
      throw;
    noted(error_of(error.fault));
  }
}

void launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
            cudaStream_t stream, const std::function<void(KernelWork &)> &change = {}) {
  const StreamId id = stream_id(stream);
  KernelWork work = kernel_work(function, grid, block, arguments, shared_bytes);
  if (change)
    change(work);
  if (!capture(id, [&]() -> Work { return work; }))
    issue(work, stream);
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
  return noted(on_device([&] { launch(kernel, grid, block, arguments, shared_bytes, stream); }));
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  return noted(on_device([&] { launch(function, grid, block, arguments, shared_bytes, stream); }));
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                        size_t shared_bytes, cudaStream_t stream) {
  return on_device([&] {
    launch(function, grid, block, arguments, shared_bytes, stream,
           [](KernelWork &work) { work.cooperative = true; });
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
  return on_device([&] {
    require(config && (config->attrs || config->numAttrs == 0));
    launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream,
           [&](KernelWork &work) {
             for (unsigned i = 0; i < config->numAttrs; ++i)
               set_attribute(work, config->attrs[i]);
           });
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  return on_device([&] {
    require(function);
    const StreamId id = stream_id(stream);
    const HostWork work{function, data};
    if (!capture(id, [&]() -> Work { return work; }))
      PendingWork::instance().issue(work, stream);
  });
}
