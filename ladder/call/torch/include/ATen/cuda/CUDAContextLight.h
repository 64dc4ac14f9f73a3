#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace at::cuda {

inline int64_t getNumGPUs() { return c10::cuda::device_count(); }
inline bool is_available() { return true; }
inline cudaDeviceProp *getDeviceProperties(c10::DeviceIndex device) {
  static cudaDeviceProp properties = [&] {
    cudaDeviceProp found;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&found, device));
    return found;
  }();
  return &properties;
}
inline cudaDeviceProp *getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline int warp_size() { return getCurrentDeviceProperties()->warpSize; }
inline bool canDeviceAccessPeer(c10::DeviceIndex, c10::DeviceIndex) { return false; }
/// One handle per thread, on the thread's current stream. It lasts as long as the process.
inline cublasHandle_t getCurrentCUDABlasHandle() {
  thread_local const cublasHandle_t handle = [] {
    cublasHandle_t made = nullptr;
    TORCH_CHECK(cublasCreate(&made) == CUBLAS_STATUS_SUCCESS, "cublasCreate failed");
    return made;
  }();
  TORCH_CHECK(cublasSetStream(handle, c10::cuda::getCurrentCUDAStream()) == CUBLAS_STATUS_SUCCESS,
              "cublasSetStream failed");
  return handle;
}
inline c10::Allocator *getCUDADeviceAllocator() { return c10::GetAllocator(c10::DeviceType::CUDA); }

} // namespace at::cuda
