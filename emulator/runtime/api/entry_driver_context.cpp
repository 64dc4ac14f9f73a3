// The CUDA driver: devices, contexts, errors, the lookup of its functions.
//
// All contexts are the one device: they share its memory and modules. A function that needs a context also
// runs without one.
#include "runtime/api/driver_api.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

namespace ladder::runtime {

CUresult driver_error(cudaError_t error) {
  switch (error) {
  case cudaErrorInvalidConfiguration:
  case cudaErrorInvalidPitchValue:
  case cudaErrorInvalidMemcpyDirection:
    return CUDA_ERROR_INVALID_VALUE;
  case cudaErrorInvalidDeviceFunction:
    return CUDA_ERROR_INVALID_HANDLE;
  case cudaErrorInvalidSymbol:
    return CUDA_ERROR_NOT_FOUND;
  default:
    return CUresult(error);
  }
}

void *find_driver_function(std::string_view name) {
  struct Function {
    std::string_view name;
    void *address;
  };
  static const Function functions[] = {
#define LADDER_DRIVER_FUNCTION(name) {#name, reinterpret_cast<void *>(&name)},
#include "runtime/api/driver_functions.def"
  };
  const auto *const found = std::find_if(std::begin(functions), std::end(functions),
                                         [&](const Function &one) { return one.name == name; });
  return found == std::end(functions) ? nullptr : found->address;
}

} // namespace ladder::runtime

using namespace ladder::runtime;

namespace {

/// Live contexts. The primary one is that of the runtime.
struct Contexts {
  std::mutex mutex;
  std::set<CUcontext> live;
  CUcontext add() {
    const std::lock_guard lock(mutex);
    const auto made = reinterpret_cast<CUcontext>(new char);
    live.insert(made);
    return made;
  }
};
// Never destroyed: programs destroy contexts in static destructors of their own.
auto &contexts = *new Contexts;
CUcontext const primary = contexts.add();
thread_local std::vector<CUcontext> current;

void require_context(CUcontext context) {
  const std::lock_guard lock(contexts.mutex);
  require(contexts.live.contains(context), cudaError_t(CUDA_ERROR_INVALID_CONTEXT));
}

void require_device(CUdevice device) { require(device == 0, cudaErrorInvalidDevice); }

} // namespace

CUresult cuInit(unsigned flags) {
  return on_driver([&] { require(flags == 0); });
}

CUresult cuDriverGetVersion(int *version) {
  return on_driver([&] { set(version, CUDA_VERSION); });
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  if (!text)
    return CUDA_ERROR_INVALID_VALUE;
  *text = cudaGetErrorString(cudaError_t(error));
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
  if (!text)
    return CUDA_ERROR_INVALID_VALUE;
  *text = nullptr;
  switch (error) {
#define LADDER_ERROR(name)                                                                                   \
  case name:                                                                                                 \
    *text = #name;                                                                                           \
    break;
#include "runtime/api/driver_error_names.def"
  }
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int, cuuint64_t,
                          CUdriverProcAddressQueryResult *result) {
  return on_driver([&] {
    require(symbol && function);
    *function = find_driver_function(symbol);
    if (result)
      *result = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!*function)
      throw CudaError(cudaErrorSymbolNotFound,
                      "cuGetProcAddress: the emulator has no driver function " + std::string(symbol));
  });
}

CUresult cuDeviceGetCount(int *count) {
  return on_driver([&] { set(count, 1); });
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  return on_driver([&] {
    require_device(ordinal);
    set(device, ordinal);
  });
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
  return on_driver([&] {
    require(name && bytes > 0);
    require_device(device);
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, device);
    std::strncpy(name, properties.name, std::size_t(bytes) - 1);
    name[bytes - 1] = 0;
  });
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  return on_driver([&] {
    require_device(device);
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, device);
    set(uuid, properties.uuid);
  });
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
  return on_driver([&] {
    require_device(device);
    set(bytes, Device::instance().gpu().global_bytes);
  });
}

// The attributes have the numbers of the runtime's.
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  return driver_error(cudaDeviceGetAttribute(value, cudaDeviceAttr(attribute), device));
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  return on_driver([&] {
    require_device(device);
    set(major, Device::instance().gpu().major);
    set(minor, Device::instance().gpu().minor);
  });
}

CUresult cuDeviceGetPCIBusId(char *name, int bytes, CUdevice device) {
  return driver_error(cudaDeviceGetPCIBusId(name, bytes, device));
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  return driver_error(cudaDeviceCanAccessPeer(can, device, peer));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  return on_driver([&] {
    require_device(device);
    set(context, primary);
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return on_driver([&] { require_device(device); });
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned) {
  return on_driver([&] { require_device(device); });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  return on_driver([&] {
    require_device(device);
    set(flags, 0);
    set(active, 1);
  });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return device == 0 ? driver_error(cudaDeviceReset()) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *, unsigned, CUdevice device) {
  return on_driver([&] {
    require_device(device);
    require(context);
    *context = contexts.add();
    current.push_back(*context);
  });
}

// The version without parameters, of before CUDA 13.
extern "C" __attribute__((visibility("default"))) CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags,
                                                                          CUdevice device) {
  return cuCtxCreate(context, nullptr, flags, device);
}

CUresult cuCtxDestroy(CUcontext context) {
  return on_driver([&] {
    require_context(context);
    require(context != primary);
    std::erase(current, context);
    const std::lock_guard lock(contexts.mutex);
    contexts.live.erase(context);
    delete reinterpret_cast<char *>(context);
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return on_driver([&] {
    if (!current.empty())
      current.pop_back();
    if (!context)
      return;
    require_context(context);
    current.push_back(context);
  });
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  return on_driver([&] { set(context, current.empty() ? nullptr : current.back()); });
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return on_driver([&] {
    require_context(context);
    current.push_back(context);
  });
}

CUresult cuCtxPopCurrent(CUcontext *context) {
  return on_driver([&] {
    require(!current.empty(), cudaError_t(CUDA_ERROR_INVALID_CONTEXT));
    if (context)
      *context = current.back();
    current.pop_back();
  });
}

CUresult cuCtxGetDevice(CUdevice *device) {
  return on_driver([&] { set(device, 0); });
}

CUresult cuCtxGetApiVersion(CUcontext, unsigned *version) {
  return on_driver([&] { set(version, CUDA_VERSION); });
}

CUresult cuCtxSynchronize() { return driver_error(cudaDeviceSynchronize()); }

CUresult cuCtxGetStreamPriorityRange(int *lowest, int *highest) {
  return driver_error(cudaDeviceGetStreamPriorityRange(lowest, highest));
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  return on_driver([] {});
}

// The limits have the numbers of the runtime's.
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return driver_error(cudaDeviceSetLimit(cudaLimit(limit), value));
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  return driver_error(cudaDeviceGetLimit(value, cudaLimit(limit)));
}

CUresult cuProfilerStart() { return CUDA_SUCCESS; }

CUresult cuProfilerStop() { return CUDA_SUCCESS; }
