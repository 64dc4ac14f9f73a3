#pragma once

#include <c10/cuda/CUDAMacros.h>
#include <c10/util/Exception.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace c10 {
using CUDAError = Error;
}

#define C10_CUDA_CHECK(EXPR)                                                                                 \
  do {                                                                                                       \
    const cudaError_t ladder_error = EXPR;                                                                   \
    if (C10_UNLIKELY(ladder_error != cudaSuccess)) {                                                         \
      static_cast<void>(cudaGetLastError());                                                                 \
      TORCH_CHECK(false, "CUDA error: ", cudaGetErrorString(ladder_error), " (",                             \
                  cudaGetErrorName(ladder_error), ")");                                                      \
    }                                                                                                        \
  } while (0)
#define C10_CUDA_CHECK_WARN(EXPR)                                                                            \
  do {                                                                                                       \
    const cudaError_t ladder_error = EXPR;                                                                   \
    if (C10_UNLIKELY(ladder_error != cudaSuccess)) {                                                         \
      static_cast<void>(cudaGetLastError());                                                                 \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(ladder_error));                                        \
    }                                                                                                        \
  } while (0)
#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_IGNORE_ERROR(EXPR)                                                                          \
  do {                                                                                                       \
    if (C10_UNLIKELY((EXPR) != cudaSuccess))                                                                 \
      static_cast<void>(cudaGetLastError());                                                                 \
  } while (0)
#define C10_CUDA_CLEAR_ERROR() static_cast<void>(cudaGetLastError())
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
