// The current device: there is one.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDAException.h>

namespace c10::cuda {

inline DeviceIndex device_count() noexcept { return 1; }
inline DeviceIndex device_count_ensure_non_zero() { return 1; }
inline DeviceIndex current_device() { return 0; }
inline void set_device(DeviceIndex device, bool = false) {
  impl::VirtualGuardImpl(DeviceType::CUDA).setDevice({DeviceType::CUDA, device});
}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
inline void stream_synchronize(cudaStream_t stream) { C10_CUDA_CHECK(cudaStreamSynchronize(stream)); }
inline void memcpy_and_sync(void *to, const void *from, int64_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream));
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

} // namespace c10::cuda

namespace at::cuda {
using namespace c10::cuda;
}
