// What the parts of the emulated CUDA device of torch share.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <cuda_runtime_api.h>

#include <string>

namespace ladder::torch_device {

constexpr c10::DeviceIndex kOnlyDevice = 0;

inline c10::Device only_device() { return {c10::DeviceType::CUDA, kOnlyDevice}; }

/// Throws c10::Error with the runtime's name and text of `code`, unless it is cudaSuccess.
void check(cudaError_t code, const char *what);

/// Throws if an earlier launch has failed or broken the device, as torch's own CUDA kernels do.
void check_earlier_work();

/// Throws c10::Error unless `index` is -1 or the only device's.
void require_device(c10::DeviceIndex index);

/// The stream that is current on this host thread. A stream's id is its cudaStream_t.
c10::Stream current_stream();
c10::Stream exchange_stream(c10::Stream stream);
inline cudaStream_t handle_of(c10::Stream stream) { return reinterpret_cast<cudaStream_t>(stream.id()); }
inline c10::Stream stream_of(cudaStream_t handle) {
  return c10::Stream(c10::Stream::UNSAFE, only_device(), reinterpret_cast<c10::StreamId>(handle));
}

} // namespace ladder::torch_device
