// The program's queries and settings of the device.
#include "host_program.h"

#include <cuda_profiler_api.h>
#include <memory>

namespace fuzz {

void HostProgram::ask() {
  int value = 0, other = 0;
  const int device = random_.one_in(2) ? random_.integer() : 0;
  int *const result = random_.one_in(10) ? nullptr : &value;
  const bool is_good = device == 0 && result;
  switch (random_.below(16)) {
  case 0:
    call("cudaGetDeviceCount", cudaGetDeviceCount(result));
    break;
  case 1:
    call("cudaGetDevice", cudaGetDevice(result));
    break;
  case 2:
    call("cudaSetDevice", cudaSetDevice(device));
    break;
  case 3:
    call("cudaInitDevice", cudaInitDevice(device, unsigned(random_.integer()), unsigned(random_.integer())));
    break;
  case 4: {
    int devices[3] = {0, device, 0};
    call("cudaSetValidDevices", cudaSetValidDevices(random_.one_in(5) ? nullptr : devices,
                                                    random_.one_in(3) ? -int(random_.below(9)) : 2));
    break;
  }
  case 5: {
    auto properties = std::make_unique<cudaDeviceProp>();
    call("cudaGetDeviceProperties", cudaGetDeviceProperties(properties.get(), device));
    call("cudaChooseDevice", cudaChooseDevice(result, properties.get()));
    break;
  }
  case 6:
    call("cudaDeviceGetAttribute",
         cudaDeviceGetAttribute(result, random_.enumerator<cudaDeviceAttr>(150), device));
    break;
  case 7: {
    char text[16];
    const int length = random_.one_in(2) ? -int(random_.below(2)) : int(random_.below(sizeof text + 1));
    call("cudaDeviceGetPCIBusId", cudaDeviceGetPCIBusId(text, length, device));
    call("cudaDeviceGetByPCIBusId",
         cudaDeviceGetByPCIBusId(result, random_.one_in(2) ? "0000:00:00.0" : "nowhere"));
    break;
  }
  case 8:
    call("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(result, &other));
    break;
  case 9:
    call("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(result, device, random_.integer()));
    call("cudaDeviceEnablePeerAccess", cudaDeviceEnablePeerAccess(device, unsigned(random_.integer())));
    call("cudaDeviceDisablePeerAccess", cudaDeviceDisablePeerAccess(device));
    break;
  case 10:
    call("cudaDeviceGetP2PAttribute",
         cudaDeviceGetP2PAttribute(result, random_.enumerator<cudaDeviceP2PAttr>(5), device, 1));
    break;
  case 11: {
    unsigned flags = 0;
    call("cudaSetDeviceFlags", cudaSetDeviceFlags(unsigned(random_.integer())));
    call("cudaGetDeviceFlags", cudaGetDeviceFlags(&flags));
    break;
  }
  case 12:
    call("cudaDriverGetVersion", cudaDriverGetVersion(result));
    call("cudaRuntimeGetVersion", cudaRuntimeGetVersion(&other));
    break;
  case 13:
    call("cudaProfilerStart", cudaProfilerStart());
    call("cudaProfilerStop", cudaProfilerStop());
    break;
  case 14:
    expect("cudaDeviceSynchronize", cudaDeviceSynchronize(), true);
    break;
  default:
    call("cudaDeviceGetAttribute", cudaDeviceGetAttribute(result, cudaDevAttrWarpSize, device));
    if (is_good && value != 32)
      fail("a warp has other than 32 lanes");
  }
}

void HostProgram::limits() {
  const auto limit = random_.enumerator<cudaLimit>(8);
  std::size_t value = 0;
  call("cudaDeviceSetLimit", cudaDeviceSetLimit(limit, random_.size(1 << 20)));
  call("cudaDeviceGetLimit", cudaDeviceGetLimit(&value, limit));
  cudaFuncCache cache{};
  call("cudaDeviceSetCacheConfig", cudaDeviceSetCacheConfig(random_.enumerator<cudaFuncCache>(4)));
  call("cudaDeviceGetCacheConfig", cudaDeviceGetCacheConfig(&cache));
  cudaSharedMemConfig banks{};
  call("cudaDeviceSetSharedMemConfig",
       cudaDeviceSetSharedMemConfig(random_.enumerator<cudaSharedMemConfig>(3)));
  call("cudaDeviceGetSharedMemConfig", cudaDeviceGetSharedMemConfig(&banks));
}

void HostProgram::errors() {
  const auto code =
      static_cast<cudaError_t>(random_.one_in(2) ? random_.integer() : int(random_.below(1000)));
  if (!*cudaGetErrorName(code) || !*cudaGetErrorString(code))
    fail("an error without a name");
  call("cudaPeekAtLastError", cudaPeekAtLastError());
  call("cudaGetLastError", cudaGetLastError());
}

} // namespace fuzz
