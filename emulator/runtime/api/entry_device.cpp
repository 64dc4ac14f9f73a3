// Queries and settings of the one device, as its VirtualGpu describes it.
#include "machine/liberties.h"
#include "runtime/observe/checking.h"
#include "runtime/work/allocations.h"
#include "runtime/work/capture.h"
#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>

using namespace ladder;
using namespace ladder::runtime;

namespace {

constexpr int kVersion = CUDART_VERSION;
constexpr const char *kPciBusId = "0000:00:00.0";
constexpr int kMaxPitch = std::numeric_limits<int>::max();
constexpr int kConstantBytes = 64 * 1024;
constexpr int kMaxBlock[3] = {1024, 1024, 64};
constexpr int kMaxGrid[3] = {2147483647, 65535, 65535};

void require_device(int device) { require(device == 0, cudaErrorInvalidDevice); }

/// The known attributes. Unlisted attributes that report support of a feature are 0.
std::optional<int> attribute_of(const machine::VirtualGpu &gpu, cudaDeviceAttr attribute) {
  switch (attribute) {
  case cudaDevAttrMaxThreadsPerBlock:
    return machine::kMaxThreadsPerBlock;
  case cudaDevAttrMaxBlockDimX:
    return kMaxBlock[0];
  case cudaDevAttrMaxBlockDimY:
    return kMaxBlock[1];
  case cudaDevAttrMaxBlockDimZ:
    return kMaxBlock[2];
  case cudaDevAttrMaxGridDimX:
    return kMaxGrid[0];
  case cudaDevAttrMaxGridDimY:
    return kMaxGrid[1];
  case cudaDevAttrMaxGridDimZ:
    return kMaxGrid[2];
  case cudaDevAttrMaxSharedMemoryPerBlock:
    return int(gpu.shared_bytes_per_block);
  case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    return int(gpu.shared_bytes_per_block_opt_in);
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
    return int(gpu.shared_bytes_per_multiprocessor);
  case cudaDevAttrReservedSharedMemoryPerBlock:
    return int(gpu.reserved_shared_bytes_per_block);
  case cudaDevAttrTotalConstantMemory:
    return kConstantBytes;
  case cudaDevAttrWarpSize:
    return int(program::kLanes);
  case cudaDevAttrMaxPitch:
    return kMaxPitch;
  case cudaDevAttrMaxRegistersPerBlock:
  case cudaDevAttrMaxRegistersPerMultiprocessor:
    return int(gpu.registers_per_multiprocessor);
  case cudaDevAttrClockRate:
    return gpu.clock_khz;
  case cudaDevAttrMemoryClockRate:
    return gpu.memory_clock_khz;
  case cudaDevAttrGlobalMemoryBusWidth:
    return gpu.memory_bus_bits;
  case cudaDevAttrL2CacheSize:
    return int(gpu.l2_bytes);
  case cudaDevAttrTextureAlignment:
  case cudaDevAttrSurfaceAlignment:
    return 512;
  case cudaDevAttrTexturePitchAlignment:
    return 32;
  case cudaDevAttrMultiProcessorCount:
    return machine::multiprocessors_of(gpu);
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    return gpu.max_threads_per_multiprocessor;
  case cudaDevAttrMaxBlocksPerMultiprocessor:
    return gpu.max_blocks_per_multiprocessor;
  case cudaDevAttrComputeCapabilityMajor:
    return gpu.major;
  case cudaDevAttrComputeCapabilityMinor:
    return gpu.minor;
  case cudaDevAttrAsyncEngineCount:
    return 2;
  case cudaDevAttrSingleToDoublePrecisionPerfRatio:
    return gpu.minor == 0 && gpu.major >= 8 ? 2 : gpu.major == 7 ? 32 : 64;
  case cudaDevAttrMemSyncDomainCount:
    return gpu.major >= 9 ? 4 : 1;
  case cudaDevAttrHostNumaId:
  case cudaDevAttrNumaId:
    return -1;
  case cudaDevAttrComputeMode:
    return cudaComputeModeDefault;
  case cudaDevAttrGpuOverlap:
  case cudaDevAttrCanMapHostMemory:
  case cudaDevAttrConcurrentKernels:
  case cudaDevAttrUnifiedAddressing:
  case cudaDevAttrStreamPrioritiesSupported:
  case cudaDevAttrGlobalL1CacheSupported:
  case cudaDevAttrLocalL1CacheSupported:
  case cudaDevAttrManagedMemory:
  case cudaDevAttrConcurrentManagedAccess:
  case cudaDevAttrDirectManagedMemAccessFromHost:
  case cudaDevAttrCanUseHostPointerForRegisteredMem:
  case cudaDevAttrHostNativeAtomicSupported:
  case cudaDevAttrCooperativeLaunch:
  case cudaDevAttrHostRegisterSupported:
  case cudaDevAttrMemoryPoolsSupported:
    return 1;
  default:
    return attribute > 0 && attribute < cudaDevAttrMax ? std::optional(0) : std::nullopt;
  }
}

int get(const machine::VirtualGpu &gpu, cudaDeviceAttr attribute) {
  return attribute_of(gpu, attribute).value_or(0);
}

cudaDeviceProp properties_of(const machine::VirtualGpu &gpu) {
  cudaDeviceProp p = {};
  std::snprintf(p.name, sizeof p.name, "%.*s (emulated)", int(gpu.name.size()), gpu.name.data());
  std::copy_n("flash-ladder emu", sizeof p.uuid.bytes, p.uuid.bytes);
  p.totalGlobalMem = gpu.global_bytes;
  p.sharedMemPerBlock = gpu.shared_bytes_per_block;
  p.sharedMemPerBlockOptin = gpu.shared_bytes_per_block_opt_in;
  p.sharedMemPerMultiprocessor = gpu.shared_bytes_per_multiprocessor;
  p.reservedSharedMemPerBlock = gpu.reserved_shared_bytes_per_block;
  p.regsPerBlock = p.regsPerMultiprocessor = int(gpu.registers_per_multiprocessor);
  p.warpSize = int(program::kLanes);
  p.memPitch = kMaxPitch;
  p.maxThreadsPerBlock = machine::kMaxThreadsPerBlock;
  std::copy(kMaxBlock, kMaxBlock + 3, p.maxThreadsDim);
  std::copy(kMaxGrid, kMaxGrid + 3, p.maxGridSize);
  p.totalConstMem = kConstantBytes;
  p.major = gpu.major;
  p.minor = gpu.minor;
  p.textureAlignment = p.surfaceAlignment = 512;
  p.texturePitchAlignment = 32;
  p.multiProcessorCount = machine::multiprocessors_of(gpu);
  p.maxThreadsPerMultiProcessor = gpu.max_threads_per_multiprocessor;
  p.maxBlocksPerMultiProcessor = gpu.max_blocks_per_multiprocessor;
  p.memoryBusWidth = gpu.memory_bus_bits;
  p.l2CacheSize = int(gpu.l2_bytes);
  p.asyncEngineCount = get(gpu, cudaDevAttrAsyncEngineCount);
  p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.streamPrioritiesSupported = 1;
  p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.managedMemory = p.concurrentManagedAccess = p.directManagedMemAccessFromHost = 1;
  p.canUseHostPointerForRegisteredMem = p.hostRegisterSupported = p.hostNativeAtomicSupported = 1;
  p.cooperativeLaunch = p.memoryPoolsSupported = 1;
  p.hostNumaId = -1;
  return p;
}

/// Limits that a program may set and read back. Those of the heap and of pending launches have an effect
/// here.
struct Limits {
  std::mutex mutex; ///< guards the values
  std::array<std::size_t, 7> values = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};
  std::atomic<cudaFuncCache> cache = cudaFuncCachePreferNone;
  std::atomic<unsigned> flags = 0;
};
Limits limits;

} // namespace

cudaError_t cudaGetDeviceCount(int *count) {
  return query([&] { set(count, 1); });
}

cudaError_t cudaGetDevice(int *device) {
  return query([&] { set(device, 0); });
}

cudaError_t cudaSetDevice(int device) {
  return query([&] { require_device(device); });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return query([&] { require_device(device); });
}

cudaError_t cudaSetValidDevices(int *devices, int count) {
  return query([&] {
    require(devices && count > 0);
    std::for_each(devices, devices + count, require_device);
  });
}

cudaError_t cudaChooseDevice(int *device, const cudaDeviceProp *wanted) {
  return query([&] {
    require(device && wanted);
    *device = 0;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  return query([&] {
    require_device(device);
    set(properties, properties_of(Device::instance().gpu()));
  });
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  return query([&] {
    require(value);
    require_device(device);
    const auto found = attribute_of(Device::instance().gpu(), attribute);
    require(found.has_value());
    *value = *found;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
  return query([&] {
    require(text && length > 0);
    require_device(device);
    require(std::size_t(length) > std::strlen(kPciBusId));
    std::strcpy(text, kPciBusId);
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text) {
  return query([&] {
    require(device && text);
    require(std::string_view(text) == kPciBusId, cudaErrorInvalidDevice);
    *device = 0;
  });
}

cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit limit) {
  return on_device([&] {
    require(value);
    require(std::size_t(limit) < limits.values.size(), cudaErrorUnsupportedLimit);
    const std::lock_guard lock(limits.mutex);
    *value = limits.values[limit];
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return on_device([&] {
    require(std::size_t(limit) < limits.values.size(), cudaErrorUnsupportedLimit);
    if (limit == cudaLimitMallocHeapSize)
      require(Device::instance().heap().set_bytes(value), cudaErrorInvalidValue);
    if (Checking *const checking = Checking::active(); checking && limit == cudaLimitStackSize)
      checking->set_stack_bytes(value);
    if (limit == cudaLimitDevRuntimePendingLaunchCount)
      Device::instance().set_pending_launch_limit(value);
    const std::lock_guard lock(limits.mutex);
    limits.values[limit] = value;
  });
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache *config) {
  return on_device([&] { set(config, limits.cache); });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
  return on_device([&] { limits.cache = config; });
}

cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig *config) {
  return on_device([&] { set(config, cudaSharedMemBankSizeFourByte); });
}

cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) {
  return on_device([] {}); // since Maxwell, banks are always four bytes wide
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  return query([&] {
    require(can);
    require_device(device);
    require_device(peer);
    *can = 0;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return query([] { throw CudaError(cudaErrorInvalidDevice); }); // there is no peer
}

cudaError_t cudaDeviceDisablePeerAccess(int) {
  return query([] { throw CudaError(cudaErrorPeerAccessNotEnabled); });
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, cudaDeviceP2PAttr, int, int) {
  return query([&] {
    require(value);
    throw CudaError(cudaErrorInvalidDevice);
  });
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return query([&] { limits.flags = flags; });
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
  return query([&] { set(flags, limits.flags | cudaDeviceMapHost); });
}

cudaError_t cudaDeviceSynchronize() {
  return on_device([] {
    refuse_unsafe_call();
    PendingWork::instance().wait_for_all();
    if (Checking *const checking = Checking::active())
      checking->streams().host_waits_for_all();
  });
}

cudaError_t cudaDeviceReset() {
  return query([] {
    if (!Device::instance().broken())
      PendingWork::instance().wait_for_all();
    Allocations::instance().free_all();
    if (Checking *const checking = Checking::active())
      checking->streams().host_waits_for_all();
    destroy_streams_and_events();
    Device::instance().reset();
  });
}

cudaError_t cudaDriverGetVersion(int *version) {
  return query([&] { set(version, kVersion); });
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaProfilerStart() {
  return query([] {});
}

cudaError_t cudaProfilerStop() {
  return query([] {});
}
