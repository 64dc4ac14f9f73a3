// A stream's id is its cudaStream_t.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAFunctions.h>

#include <ostream>

namespace c10::cuda {

class CUDAStream {
public:
  enum Unchecked { UNCHECKED };
  explicit CUDAStream(Stream stream) : stream_(stream) {
    TORCH_CHECK(stream_.device_type() == DeviceType::CUDA);
  }
  explicit CUDAStream(Unchecked, Stream stream) : stream_(stream) {}

  bool operator==(const CUDAStream &other) const noexcept { return stream_ == other.stream_; }
  bool operator!=(const CUDAStream &other) const noexcept { return stream_ != other.stream_; }
  operator cudaStream_t() const { return stream(); }
  operator Stream() const { return stream_; }
  Stream unwrap() const { return stream_; }
  cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(stream_.id()); }
  DeviceType device_type() const { return DeviceType::CUDA; }
  DeviceIndex device_index() const { return stream_.device_index(); }
  Device device() const { return stream_.device(); }
  StreamId id() const { return stream_.id(); }
  bool query() const { return stream_.query(); }
  void synchronize() const { stream_.synchronize(); }
  int priority() const {
    int priority = 0;
    C10_CUDA_CHECK(cudaStreamGetPriority(stream(), &priority));
    return priority;
  }
  bool is_capturing() const {
    cudaStreamCaptureStatus status{};
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream(), &status));
    return status != cudaStreamCaptureStatusNone;
  }

private:
  Stream stream_;
};

namespace ladder_detail {
inline impl::VirtualGuardImpl streams() { return impl::VirtualGuardImpl(DeviceType::CUDA); }
inline Device device() { return {DeviceType::CUDA, 0}; }
} // namespace ladder_detail

inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) {
  return CUDAStream(ladder_detail::streams().getStream(ladder_detail::device()));
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) {
  return CUDAStream(ladder_detail::streams().getDefaultStream(ladder_detail::device()));
}
inline CUDAStream getStreamFromPool(bool is_high_priority = false, DeviceIndex = -1) {
  return CUDAStream(
      ladder_detail::streams().getStreamFromGlobalPool(ladder_detail::device(), is_high_priority));
}
inline CUDAStream getStreamFromPool(int priority, DeviceIndex = -1) {
  return getStreamFromPool(priority < 0);
}
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex) {
  return CUDAStream(Stream(Stream::UNSAFE, ladder_detail::device(), reinterpret_cast<StreamId>(stream)));
}
inline void setCurrentCUDAStream(CUDAStream stream) {
  ladder_detail::streams().exchangeStream(stream.unwrap());
}
inline std::ostream &operator<<(std::ostream &out, const CUDAStream &stream) {
  return out << stream.unwrap();
}

} // namespace c10::cuda

namespace std {
template <> struct hash<c10::cuda::CUDAStream> {
  size_t operator()(c10::cuda::CUDAStream stream) const noexcept {
    return hash<c10::Stream>{}(stream.unwrap());
  }
};
} // namespace std
