// The driver: contexts, a module of PTX, its kernels and variables, memory, streams.
#include "check.h"

#include <cuda.h>

#include <cstring>
#include <string>
#include <vector>

#define DRIVER(call) GIVES(call, CUDA_SUCCESS)
#define GIVES(call, wanted)                                                                                  \
  do {                                                                                                       \
    const CUresult code_ = (call);                                                                           \
    if (code_ != (wanted)) {                                                                                 \
      const char *name_ = "?";                                                                               \
      cuGetErrorName(code_, &name_);                                                                         \
      std::printf("%s:%d: %s gives %s\n", __FILE__, __LINE__, #call, name_);                                 \
      std::exit(1);                                                                                          \
    }                                                                                                        \
  } while (0)

// x[i] = x[i] * by + offset, where i < n.
const char *const kModule = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .f32 offset = 0f3F800000;
.visible .entry scale(.param .u64 x, .param .f32 by, .param .u32 n) {
  .reg .pred %p; .reg .u32 %i, %c, %s, %n; .reg .u64 %x; .reg .f32 %f, %b, %o;
  mov.u32 %c, %ctaid.x; mov.u32 %s, %ntid.x; mov.u32 %i, %tid.x;
  mad.lo.u32 %i, %c, %s, %i;
  ld.param.u32 %n, [n];
  setp.ge.u32 %p, %i, %n;
  @%p ret;
  ld.param.u64 %x, [x];
  cvta.to.global.u64 %x, %x;
  mad.wide.u32 %x, %i, 4, %x;
  ld.global.f32 %f, [%x];
  ld.param.f32 %b, [by];
  ld.global.f32 %o, [offset];
  fma.rn.f32 %f, %f, %b, %o;
  st.global.f32 [%x], %f;
  ret;
}
)";

void contexts() {
  int count = 0, version = 0, major = 0, warp = 0;
  char name[64];
  size_t bytes = 0;
  DRIVER(cuInit(0));
  GIVES(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  DRIVER(cuDriverGetVersion(&version));
  CHECK(version == CUDA_VERSION);
  DRIVER(cuDeviceGetCount(&count));
  CHECK(count == 1);
  CUdevice device;
  GIVES(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
  DRIVER(cuDeviceGet(&device, 0));
  DRIVER(cuDeviceGetName(name, sizeof name, device));
  CHECK(std::strlen(name) > 0);
  DRIVER(cuDeviceGetName(name, 3, device));
  CHECK(std::strlen(name) == 2);
  DRIVER(cuDeviceTotalMem(&bytes, device));
  CHECK(bytes > size_t(1) << 30);
  DRIVER(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  DRIVER(cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
  CHECK(major == 8 && warp == 32);
  CUcontext first, second, now;
  DRIVER(cuCtxCreate(&first, nullptr, 0, device));
  DRIVER(cuCtxCreate(&second, nullptr, 0, device));
  DRIVER(cuCtxGetCurrent(&now));
  CHECK(now == second);
  DRIVER(cuCtxPopCurrent(&now));
  CHECK(now == second);
  DRIVER(cuCtxGetCurrent(&now));
  CHECK(now == first);
  DRIVER(cuCtxDestroy(second));
  GIVES(cuCtxPushCurrent(second), CUDA_ERROR_INVALID_CONTEXT);
  DRIVER(cuCtxDestroy(first));
  DRIVER(cuCtxGetCurrent(&now));
  CHECK(now == nullptr);
  GIVES(cuCtxPopCurrent(&now), CUDA_ERROR_INVALID_CONTEXT);
  DRIVER(cuDevicePrimaryCtxRetain(&now, device));
  DRIVER(cuCtxSetCurrent(now));
}

void modules() {
  CUmodule module;
  CUfunction scale, again;
  DRIVER(cuModuleLoadData(&module, kModule));
  DRIVER(cuModuleGetFunction(&scale, module, "scale"));
  DRIVER(cuModuleGetFunction(&again, module, "scale"));
  CHECK(scale == again);
  int threads = 0;
  DRIVER(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, scale));
  CHECK(threads == 1024);

  const int n = 1000;
  std::vector<float> x(n, 2);
  CUdeviceptr on_device;
  DRIVER(cuMemAlloc(&on_device, n * sizeof(float)));
  DRIVER(cuMemcpyHtoD(on_device, x.data(), n * sizeof(float)));
  float by = 3;
  int length = n;
  CUstream stream;
  CUevent begin, end;
  DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  DRIVER(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  DRIVER(cuEventCreate(&end, CU_EVENT_DEFAULT));
  DRIVER(cuStreamSynchronize(stream));
  DRIVER(cuEventRecord(begin, stream));
  void *arguments[] = {&on_device, &by, &length};
  DRIVER(cuLaunchKernel(scale, 8, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr)); // 2 * 3 + 1
  DRIVER(cuStreamSynchronize(stream));

  CUdeviceptr offset;
  size_t bytes;
  DRIVER(cuModuleGetGlobal(&offset, &bytes, module, "offset"));
  CHECK(bytes == 4);
  const float two = 2;
  DRIVER(cuMemcpyHtoD(offset, &two, 4));
  struct {
    CUdeviceptr x;
    float by;
    int n;
  } packed{on_device, by, n};
  size_t size = sizeof packed;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  DRIVER(cuLaunchKernel(scale, 8, 1, 1, 128, 1, 1, 0, stream, nullptr, extra)); // 7 * 3 + 2
  size = 12;
  GIVES(cuLaunchKernel(scale, 8, 1, 1, 128, 1, 1, 0, stream, nullptr, extra), CUDA_ERROR_INVALID_VALUE);
  DRIVER(cuEventRecord(end, stream));
  DRIVER(cuCtxSynchronize());
  float milliseconds = -1;
  DRIVER(cuEventElapsedTime(&milliseconds, begin, end));
  CHECK(milliseconds >= 0);
  DRIVER(cuMemcpyDtoH(x.data(), on_device, n * sizeof(float)));
  for (const float value : x)
    CHECK(value == 23);

  DRIVER(cuMemsetD32(on_device, 0x40400000, n)); // 3.0f
  DRIVER(cuMemsetD16(on_device, 0, 2));
  DRIVER(cuMemcpyDtoH(x.data(), on_device, n * sizeof(float)));
  CHECK(x[0] == 0 && x[1] == 3 && x[n - 1] == 3);
  CUdeviceptr base;
  DRIVER(cuMemGetAddressRange(&base, &bytes, on_device + 40));
  CHECK(base == on_device && bytes == n * sizeof(float));
  DRIVER(cuMemFree(on_device));
  GIVES(cuMemFree(on_device), CUDA_ERROR_INVALID_VALUE);
  DRIVER(cuEventDestroy(begin));
  DRIVER(cuEventDestroy(end));
  DRIVER(cuStreamDestroy(stream));

  GIVES(cuModuleGetFunction(&again, module, "scales"), CUDA_ERROR_NOT_FOUND);
  GIVES(cuModuleGetGlobal(&offset, &bytes, module, "offsets"), CUDA_ERROR_NOT_FOUND);
  DRIVER(cuModuleUnload(module));
  GIVES(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  GIVES(cuLaunchKernel(scale, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

void refusals() {
  CUmodule module;
  const std::string broken = std::string(kModule) + "nonsense";
  GIVES(cuModuleLoadData(&module, broken.c_str()), CUDA_ERROR_INVALID_PTX);
  const std::string newer = ".version 8.0\n.target sm_90\n.address_size 64\n";
  GIVES(cuModuleLoadData(&module, newer.c_str()), CUDA_ERROR_NO_BINARY_FOR_GPU);
  const char machine_code[64] = "\177ELF";
  GIVES(cuModuleLoadData(&module, machine_code), CUDA_ERROR_INVALID_IMAGE);
  GIVES(cuModuleLoad(&module, "/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
  GIVES(cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  void *found = nullptr;
  CUdriverProcAddressQueryResult result;
  DRIVER(cuGetProcAddress("cuModuleUnload", &found, CUDA_VERSION, 0, &result));
  CHECK(result == CU_GET_PROC_ADDRESS_SUCCESS);
  GIVES(reinterpret_cast<CUresult (*)(CUmodule)>(found)(nullptr), CUDA_ERROR_INVALID_HANDLE);
  GIVES(cuGetProcAddress("cuNoSuch", &found, CUDA_VERSION, 0, &result), CUDA_ERROR_NOT_FOUND);
}

int main(int count, char **arguments) {
  contexts();
  modules();
  refusals();
  if (count > 1) { // a module from a file
    CUmodule module;
    CUfunction function;
    DRIVER(cuModuleLoad(&module, arguments[1]));
    DRIVER(cuModuleGetFunction(&function, module, "fill"));
    CUdeviceptr x;
    int value = 0;
    DRIVER(cuMemAlloc(&x, 4));
    void *parameters[] = {&x};
    DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    DRIVER(cuMemcpyDtoH(&value, x, 4));
    CHECK(value == 42);
    DRIVER(cuMemFree(x));
  }
}
