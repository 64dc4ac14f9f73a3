// Attributes of kernels, and occupancy.
#include "machine/cluster.h"
#include "machine/liberties.h"
#include "machine/occupancy.h"
#include "runtime/work/entry.h"
#include "runtime/work/kernels.h"

#include <algorithm>

namespace ladder::runtime {

RegisteredKernel &find_kernel(const void *function) {
  RegisteredKernel *kernel = function ? Registry::instance().kernel(function) : nullptr;
  require(kernel, cudaErrorInvalidDeviceFunction);
  return *kernel;
}

KernelOnDevice::KernelOnDevice(const RegisteredKernel &kernel)
    : kernel_(kernel), code_(kernel.binary->module(Device::instance().gpu()).kernel(kernel.name)) {}

const program::Function &KernelOnDevice::entry() const {
  return code_->program->functions[code_->layout.functions.front()];
}

std::uint64_t KernelOnDevice::largest_dynamic_shared() const {
  const std::uint64_t most = Device::instance().gpu().shared_bytes_per_block_opt_in;
  return most - std::min(most, code_->layout.dynamic_shared_offset);
}

std::uint64_t KernelOnDevice::dynamic_shared_limit() const {
  if (kernel_.max_dynamic_shared_bytes >= 0)
    return std::min<std::uint64_t>(std::uint64_t(kernel_.max_dynamic_shared_bytes), largest_dynamic_shared());
  const std::uint64_t most = Device::instance().gpu().shared_bytes_per_block;
  return most - std::min(most, code_->layout.dynamic_shared_offset);
}

} // namespace ladder::runtime

using namespace ladder;
using namespace ladder::runtime;

namespace {

constexpr int kWarp = 32;

int most_threads(const program::Function &entry) {
  if (!entry.max_threads[0])
    return machine::kMaxThreadsPerBlock;
  const std::uint64_t most = std::uint64_t(entry.max_threads[0]) * std::max(1u, entry.max_threads[1]) *
                             std::max(1u, entry.max_threads[2]);
  return int(std::min<std::uint64_t>(most, machine::kMaxThreadsPerBlock));
}

} // namespace

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
  return on_device([&] {
    require(attributes);
    const RegisteredKernel &kernel = find_kernel(function);
    const KernelOnDevice on_device(kernel);
    const machine::VirtualGpu &gpu = Device::instance().gpu();
    *attributes = {};
    attributes->sharedSizeBytes = on_device.static_shared_bytes();
    for (const program::Symbol &symbol : on_device.code()->program->symbols)
      if (symbol.space == ptx::StateSpace::constant)
        attributes->constSizeBytes += symbol.bytes;
    attributes->localSizeBytes = on_device.entry().local_bytes;
    attributes->maxThreadsPerBlock = most_threads(on_device.entry());
    attributes->numRegs = machine::registers_per_thread(gpu);
    attributes->ptxVersion = attributes->binaryVersion = gpu.major * 10 + gpu.minor;
    attributes->maxDynamicSharedSizeBytes = int(on_device.dynamic_shared_limit());
    attributes->preferredShmemCarveout = kernel.preferred_carveout;
  });
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
  return on_device([&] {
    RegisteredKernel &kernel = find_kernel(function);
    switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize: {
      const KernelOnDevice on_device(kernel);
      const std::uint64_t most = on_device.largest_dynamic_shared();
      if (value < 0 || std::uint64_t(value) > most)
        throw CudaError(cudaErrorInvalidValue,
                        "cudaFuncSetAttribute: " + std::to_string(value) +
                            " bytes of dynamic shared memory; " + demangle(kernel.name) + " can have " +
                            std::to_string(most) + " on " + std::string(Device::instance().gpu().arch));
      kernel.max_dynamic_shared_bytes = value;
      return;
    }
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      require(value >= -1 && value <= 100);
      kernel.preferred_carveout = value;
      return;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
      kernel.allows_large_clusters = value != 0;
      return;
    default:
      throw CudaError(cudaErrorInvalidValue);
    }
  });
}

cudaError_t cudaFuncSetCacheConfig(const void *function, cudaFuncCache) {
  return on_device([&] { find_kernel(function); });
}

cudaError_t cudaFuncSetSharedMemConfig(const void *function, cudaSharedMemConfig) {
  return on_device([&] { find_kernel(function); });
}

cudaError_t cudaFuncGetName(const char **name, const void *function) {
  return query([&] { set(name, find_kernel(function).name.c_str()); });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function,
                                                                   int threads, size_t dynamic_shared_bytes,
                                                                   unsigned) {
  return on_device([&] {
    require(blocks && threads > 0);
    const KernelOnDevice kernel(find_kernel(function));
    *blocks = threads > most_threads(kernel.entry())
                  ? 0
                  : machine::blocks_per_multiprocessor(Device::instance().gpu(), *kernel.code(),
                                                       std::uint64_t(threads), dynamic_shared_bytes);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                          size_t dynamic_shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                dynamic_shared_bytes, 0);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *function, int blocks,
                                                      int threads) {
  return on_device([&] {
    require(bytes && blocks > 0 && threads > 0);
    const KernelOnDevice kernel(find_kernel(function));
    const machine::VirtualGpu &gpu = Device::instance().gpu();
    require(threads <= machine::kMaxThreadsPerBlock && blocks <= gpu.max_blocks_per_multiprocessor);
    const int warps = (threads + kWarp - 1) / kWarp;
    require(blocks * warps * kWarp <= gpu.max_threads_per_multiprocessor);
    *bytes = machine::available_dynamic_shared(gpu, *kernel.code(), blocks);
  });
}

/// A cluster runs on the multiprocessors of one GPC. The H200 has GPCs of 16 and of 18; here every GPC has
/// 16.
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function,
                                           const cudaLaunchConfig_t *config) {
  return on_device([&] {
    require(clusters && config && (config->attrs || config->numAttrs == 0));
    const KernelOnDevice kernel(find_kernel(function));
    const dim3 block = config->blockDim;
    std::uint64_t size = 1;
    for (unsigned i = 0; i < config->numAttrs; ++i)
      if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
        const auto &shape = config->attrs[i].val.clusterDim;
        size = std::uint64_t(shape.x) * shape.y * shape.z;
      }
    require(size >= 1 && size <= machine::kMostBlocksOfCluster, cudaErrorInvalidClusterSize);
    const machine::VirtualGpu &gpu = Device::instance().gpu();
    require(gpu.major >= 9 || size == 1, cudaErrorNotSupported);
    const std::uint64_t blocks = std::uint64_t(machine::blocks_per_multiprocessor(
        gpu, *kernel.code(), std::uint64_t(block.x) * block.y * block.z, config->dynamicSmemBytes));
    const std::uint64_t group = machine::kMostBlocksOfCluster;
    *clusters = int(std::uint64_t(machine::multiprocessors_of(gpu)) / group * (group * blocks / size));
  });
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *function,
                                                 const cudaLaunchConfig_t *config) {
  return on_device([&] {
    require(size && config);
    RegisteredKernel &kernel = find_kernel(function);
    constexpr int kPortable = 8;
    const bool has_clusters = Device::instance().gpu().major >= 9;
    *size = !has_clusters ? 1 : kernel.allows_large_clusters ? int(machine::kMostBlocksOfCluster) : kPortable;
  });
}
