// The CUDA driver: modules, their kernels and variables, launches, occupancy.
#include "runtime/api/driver_api.h"
#include "runtime/work/kernels.h"
#include "runtime/work/registry.h"

#include <fstream>
#include <iterator>
#include <vector>

using namespace ladder;
using namespace ladder::runtime;

namespace {

constexpr std::string_view kNoPtx =
    "a module of machine code alone cannot be emulated; load PTX (nvcc -ptx, or "
    "nvrtcGetPTX) or a fat binary with PTX (nvcc -fatbin "
    "-gencode=arch=compute_80,code=compute_80 -Xfatbin --compress=false)";

FatBinary &binary_of(CUmodule module) {
  FatBinary *const binary = Registry::instance().find_binary(module);
  require(binary, cudaErrorInvalidResourceHandle);
  return *binary;
}

LoadedModule &loaded(CUmodule module) { return binary_of(module).module(Device::instance().gpu()); }

/// Loads a module; its handle is the fat binary's address. All its kernels are registered, since a kernel may
/// launch others that the host never asks for. A kernel's place in the program serves as the host's function.
CUmodule load(ModuleImage image) {
  if (image.kind == ModuleImage::Kind::machine_code)
    throw CudaError(cudaErrorInvalidKernelImage, std::string(kNoPtx));
  FatBinary *const binary = Registry::instance().add_binary(std::move(image));
  try {
    const LoadedModule &module = binary->module(Device::instance().gpu());
    for (const std::string &kernel : module.kernels())
      Registry::instance().add_kernel(binary, module.entry(kernel), kernel);
  } catch (...) {
    Registry::instance().remove_binary(binary);
    throw;
  }
  return reinterpret_cast<CUmodule>(binary);
}

RegisteredKernel &kernel_of(CUfunction function) { return find_kernel(function); }

/// The addresses of the arguments in a buffer of them (CU_LAUNCH_PARAM_BUFFER_POINTER).
std::vector<void *> arguments_in(const RegisteredKernel &kernel, void **extra) {
  char *buffer = nullptr;
  std::size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2)
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = static_cast<char *>(extra[1]);
    else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
      bytes = *static_cast<std::size_t *>(extra[1]);
    else
      throw CudaError(cudaErrorInvalidValue, "cuLaunchKernel: extra has an unknown entry");
  const KernelOnDevice on_device(kernel);
  const program::Function &entry = on_device.entry();
  std::vector<void *> arguments;
  for (const program::Parameter &parameter : entry.parameters) {
    require(buffer && parameter.offset + parameter.bytes <= bytes, cudaErrorInvalidValue,
            "cuLaunchKernel: the buffer of arguments is smaller than the kernel's parameters");
    arguments.push_back(buffer + parameter.offset);
  }
  return arguments;
}

} // namespace

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return on_driver([&] {
    require(module && image);
    *module = load(ModuleImage::at(image));
  });
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                            void **values) {
  // The logs of the compiler stay empty; what is wrong is printed.
  for (unsigned i = 0; i < count && options && values; ++i) {
    if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      values[i] = nullptr;
    if ((options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER) && values[i])
      *static_cast<char *>(values[i]) = 0;
  }
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
  return on_driver([&] {
    require(module && path);
    std::ifstream file(path, std::ios::binary);
    if (!file)
      throw CudaError(cudaErrorFileNotFound, "cuModuleLoad: " + std::string(path) + " cannot be read");
    *module = load(ModuleImage::of({std::istreambuf_iterator<char>(file), {}}));
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return on_driver([&] {
    const auto unused = Device::instance().unused_memory();
    Registry::instance().remove_binary(&binary_of(module));
  });
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  return on_driver([&] {
    require(function && name);
    const program::Function *const entry = loaded(module).entry(name);
    if (!entry) {
      std::string known;
      for (const std::string &kernel : loaded(module).kernels())
        known += (known.empty() ? "" : ", ") + kernel;
      throw CudaError(
          cudaErrorSymbolNotFound,
          "cuModuleGetFunction: the module has no kernel " + std::string(name) + "; it has " + known +
              (known.find("_Z") == std::string::npos ? "" : " (extern \"C\" keeps names unmangled)"));
    }
    *function = reinterpret_cast<CUfunction>(Registry::instance().kernel(entry));
  });
}

CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  return on_driver([&] {
    require(name);
    const auto variable = loaded(module).variable(name);
    require(variable.has_value(), cudaErrorSymbolNotFound);
    if (address)
      *address = variable->address;
    if (bytes)
      *bytes = variable->bytes;
  });
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, function);
  if (error != cudaSuccess)
    return driver_error(error);
  return on_driver([&] {
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return set(value, attributes.maxThreadsPerBlock);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return set(value, int(attributes.sharedSizeBytes));
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return set(value, int(attributes.constSizeBytes));
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return set(value, int(attributes.localSizeBytes));
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return set(value, attributes.numRegs);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return set(value, attributes.ptxVersion);
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return set(value, attributes.binaryVersion);
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return set(value, attributes.maxDynamicSharedSizeBytes);
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return set(value, attributes.preferredShmemCarveout);
    default:
      throw CudaError(cudaErrorInvalidValue, "cuFuncGetAttribute of this attribute is not emulated");
    }
  });
}

// The attributes that can be set have the numbers of the runtime's.
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return driver_error(cudaFuncSetAttribute(function, cudaFuncAttribute(attribute), value));
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
  return driver_error(cudaFuncSetCacheConfig(function, cudaFuncCachePreferNone));
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
  return driver_error(cudaFuncGetName(name, function));
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **arguments, void **extra) {
  std::vector<void *> gathered;
  if (extra) {
    const CUresult code = on_driver([&] {
      require(!arguments, cudaErrorInvalidValue, "cuLaunchKernel: kernelParams and extra are both given");
      gathered = arguments_in(kernel_of(function), extra);
    });
    if (code != CUDA_SUCCESS)
      return code;
    arguments = gathered.data();
  }
  return driver_error(cudaLaunchKernel(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                                       arguments, shared_bytes, stream));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z,
                                   unsigned shared_bytes, CUstream stream, void **arguments) {
  return driver_error(cudaLaunchCooperativeKernel(
      function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, arguments, shared_bytes, stream));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
  std::vector<void *> gathered;
  const CUresult code = on_driver([&] {
    require(config);
    if (extra)
      gathered = arguments_in(kernel_of(function), extra);
  });
  if (code != CUDA_SUCCESS)
    return code;
  // The attributes are those of the runtime.
  cudaLaunchConfig_t runtime_config{};
  runtime_config.gridDim = {config->gridDimX, config->gridDimY, config->gridDimZ};
  runtime_config.blockDim = {config->blockDimX, config->blockDimY, config->blockDimZ};
  runtime_config.dynamicSmemBytes = config->sharedMemBytes;
  runtime_config.stream = config->hStream;
  static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute));
  runtime_config.attrs = reinterpret_cast<cudaLaunchAttribute *>(config->attrs);
  runtime_config.numAttrs = config->numAttrs;
  return driver_error(cudaLaunchKernelExC(&runtime_config, function, extra ? gathered.data() : arguments));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t dynamic_shared_bytes) {
  return driver_error(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic_shared_bytes));
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          CUoccupancyB2DSize shared_bytes_of, size_t dynamic_shared_bytes,
                                          int limit) {
  return on_driver([&] {
    require(grid && block);
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, function) == cudaSuccess);
    constexpr int kWarp = 32;
    const int most =
        limit > 0 ? std::min(limit, attributes.maxThreadsPerBlock) : attributes.maxThreadsPerBlock;
    int best = 0;
    for (int threads = most / kWarp * kWarp; threads > 0; threads -= kWarp) {
      int blocks = 0;
      const std::size_t bytes = shared_bytes_of ? shared_bytes_of(threads) : dynamic_shared_bytes;
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, bytes);
      if (blocks * threads > best) {
        best = blocks * threads;
        *block = threads;
        cudaDeviceProp properties;
        cudaGetDeviceProperties(&properties, 0);
        *grid = blocks * properties.multiProcessorCount;
      }
    }
    require(best > 0);
  });
}
