// Seeds for kernels that draw random numbers by Philox. They come from torch's generator of the CPU, as all
// random numbers of the device do, so that torch.manual_seed repeats them.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <mutex>
#include <utility>

namespace at {

struct CUDAGeneratorImpl : c10::GeneratorImpl {
  explicit CUDAGeneratorImpl(c10::DeviceIndex = 0)
      : GeneratorImpl(c10::Device(device_type(), 0), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}

  static c10::DeviceType device_type() { return c10::DeviceType::CUDA; }

  void set_current_seed(uint64_t seed) override { host().set_current_seed(seed); }
  uint64_t current_seed() const override { return host().current_seed(); }
  uint64_t seed() override { return host().seed(); }
  void set_offset(uint64_t offset) override { host().set_offset(offset); }
  uint64_t get_offset() const override { return host().get_offset(); }
  void set_state(const c10::TensorImpl &state) override { host().set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host().get_state(); }

  /// Another seed for each launch, so that no two draw the same numbers.
  std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t) {
    const std::lock_guard<std::mutex> lock(host().mutex_);
    return {host().random64(), 0};
  }
  PhiloxCudaState philox_cuda_state(uint64_t increment) {
    const auto [seed, offset] = philox_engine_inputs(increment);
    return {seed, offset};
  }

private:
  static CPUGeneratorImpl &host() {
    return *check_generator<CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  }
  CUDAGeneratorImpl *clone_impl() const override { return new CUDAGeneratorImpl(); }
};

namespace cuda::detail {

inline const Generator &getDefaultCUDAGenerator(c10::DeviceIndex = -1) {
  static const Generator generator = make_generator<CUDAGeneratorImpl>();
  return generator;
}
inline Generator createCUDAGenerator(c10::DeviceIndex = -1) { return make_generator<CUDAGeneratorImpl>(); }

} // namespace cuda::detail

} // namespace at
