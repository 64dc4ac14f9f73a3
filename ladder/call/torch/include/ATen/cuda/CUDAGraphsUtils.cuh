// Kernels unpack the state of Philox by what this includes. Launches of torch are not captured.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/PhiloxUtils.cuh>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <string>

namespace at::cuda {

using CaptureStatus = c10::cuda::CaptureStatus;

inline CaptureStatus currentStreamCaptureStatus() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx();
}
inline void assertNotCapturing(const std::string &attempt) {
  TORCH_CHECK(currentStreamCaptureStatus() == CaptureStatus::None, attempt, " during CUDA graph capture");
}

} // namespace at::cuda
