#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAGraphsC10Utils.h> // torch's own
#include <c10/cuda/CUDAStream.h>

#include <optional>

namespace c10::cuda {

namespace ladder_detail {
inline Device cuda(DeviceIndex index) { return {DeviceType::CUDA, index}; }
} // namespace ladder_detail

struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex index) : guard_(ladder_detail::cuda(index)) {}
  explicit CUDAGuard(Device device) : guard_(device) {
    TORCH_CHECK(device.is_cuda(), "Expected a CUDA device, but got ", device);
  }
  CUDAGuard(const CUDAGuard &) = delete;
  CUDAGuard &operator=(const CUDAGuard &) = delete;
  void set_device(Device device) { guard_.reset_device(device); }
  void reset_device(Device device) { guard_.reset_device(device); }
  void set_index(DeviceIndex index) { guard_.set_index(index); }
  Device original_device() const { return guard_.original_device(); }
  Device current_device() const { return guard_.current_device(); }

private:
  DeviceGuard guard_;
};

struct OptionalCUDAGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device)
      guard_.emplace(*device);
  }
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> index) {
    if (index)
      guard_.emplace(ladder_detail::cuda(*index));
  }
  OptionalCUDAGuard(const OptionalCUDAGuard &) = delete;
  OptionalCUDAGuard &operator=(const OptionalCUDAGuard &) = delete;
  void set_device(Device device) { guard_.emplace(device); }
  void reset_device(Device device) { guard_.emplace(device); }
  void set_index(DeviceIndex index) { guard_.emplace(ladder_detail::cuda(index)); }
  std::optional<Device> original_device() const {
    return guard_ ? std::optional(guard_->original_device()) : std::nullopt;
  }
  std::optional<Device> current_device() const {
    return guard_ ? std::optional(guard_->current_device()) : std::nullopt;
  }
  void reset() { guard_.reset(); }

private:
  std::optional<DeviceGuard> guard_;
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(Stream stream) : guard_(stream) {}
  CUDAStreamGuard(const CUDAStreamGuard &) = delete;
  CUDAStreamGuard &operator=(const CUDAStreamGuard &) = delete;
  void reset_stream(Stream stream) { guard_.reset_stream(stream); }
  CUDAStream original_stream() const { return CUDAStream(guard_.original_stream()); }
  CUDAStream current_stream() const { return CUDAStream(guard_.current_stream()); }
  Device original_device() const { return guard_.original_device(); }
  Device current_device() const { return guard_.current_device(); }

private:
  StreamGuard guard_;
};

struct OptionalCUDAStreamGuard {
  OptionalCUDAStreamGuard() = default;
  explicit OptionalCUDAStreamGuard(std::optional<Stream> stream) {
    if (stream)
      guard_.emplace(*stream);
  }
  void reset_stream(Stream stream) { guard_.emplace(stream); }
  void reset() { guard_.reset(); }

private:
  std::optional<StreamGuard> guard_;
};

} // namespace c10::cuda
