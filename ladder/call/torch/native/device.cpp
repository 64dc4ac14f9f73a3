// The emulated GPU as torch's device "cuda:0": its memory, streams and events, and what torch asks of CUDA.
//
// Work is complete when a call returns, so streams and events order nothing.
#include "device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace ladder::torch_device {

namespace {

thread_local cudaStream_t current_handle = nullptr;

/// The bytes of the tensors on the device, for torch.cuda's memory statistics.
class MemoryUse {
public:
  struct Totals {
    std::int64_t allocated, peak, ever_allocated, allocations, peak_allocations, ever_allocations;
  };

  void add(void *memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[memory] = bytes;
    totals_.allocated += std::int64_t(bytes);
    totals_.ever_allocated += std::int64_t(bytes);
    ++totals_.allocations;
    ++totals_.ever_allocations;
    note_peak();
  }
  void remove(void *memory) {
    const std::lock_guard lock(mutex_);
    if (const auto found = sizes_.find(memory); found != sizes_.end()) {
      totals_.allocated -= std::int64_t(found->second);
      --totals_.allocations;
      sizes_.erase(found);
    }
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    totals_.peak = totals_.peak_allocations = 0;
    note_peak();
  }
  Totals totals() {
    const std::lock_guard lock(mutex_);
    return totals_;
  }

private:
  void note_peak() {
    totals_.peak = std::max(totals_.peak, totals_.allocated);
    totals_.peak_allocations = std::max(totals_.peak_allocations, totals_.allocations);
  }

  std::mutex mutex_;
  std::unordered_map<void *, std::size_t> sizes_;
  Totals totals_{};
};

/// Never destroyed: tensors may be released while the process ends.
MemoryUse &memory_use() {
  static auto *const use = new MemoryUse;
  return *use;
}

void release_device(void *memory) {
  memory_use().remove(memory);
  static_cast<void>(cudaFree(memory));
}
void release_pinned(void *memory) { static_cast<void>(cudaFreeHost(memory)); }

/// Every tensor is an allocation of its own, so that an access beyond its end is seen.
class DeviceAllocator final : public c10::Allocator {
public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void *memory = nullptr;
    if (bytes) {
      const cudaError_t code = cudaMalloc(&memory, bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, code != cudaErrorMemoryAllocation,
                       "CUDA out of memory. Tried to allocate ", bytes, " bytes on the emulated GPU.");
      check(code, "cudaMalloc");
      memory_use().add(memory, bytes);
    }
    return {memory, memory, &release_device, only_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_device; }
  void copy_data(void *to, const void *from, std::size_t bytes) const override {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice), "cudaMemcpy");
  }
};

class PinnedAllocator final : public c10::Allocator {
public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void *memory = nullptr;
    if (bytes)
      check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    return {memory, memory, &release_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
  void copy_data(void *to, const void *from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

PinnedAllocator pinned_allocator;

using Time = std::chrono::steady_clock::time_point;

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    require_device(device.index());
    return only_device();
  }
  c10::Device getDevice() const override { return only_device(); }
  void setDevice(c10::Device device) const override { require_device(device.index()); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return current_stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(nullptr); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device);
  }
  c10::Stream getNewStream(c10::Device, int priority = 0) const override {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, priority), "cudaStreamCreate");
    return stream_of(made);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  void *getStreamNativeHandle(c10::Stream stream) const override { return handle_of(stream); }
  bool queryStream(const c10::Stream &) const override { return true; }
  void synchronizeStream(const c10::Stream &stream) const override {
    check(cudaStreamSynchronize(handle_of(stream)), "cudaStreamSynchronize");
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void record(void **event, const c10::Stream &, c10::DeviceIndex, c10::EventFlag) const override {
    if (!*event)
      *event = new Time;
    *static_cast<Time *>(*event) = std::chrono::steady_clock::now();
  }
  void destroyEvent(void *event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Time *>(event);
  }
  void block(void *, const c10::Stream &) const override {}
  bool queryEvent(void *) const override { return true; }
  void synchronizeEvent(void *) const override { synchronizeDevice(kOnlyDevice); }
  double elapsedTime(void *first, void *last, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(*static_cast<Time *>(last) - *static_cast<Time *>(first))
        .count();
  }
};

/// Random numbers come from torch's generator of the CPU, as the operations do.
at::Generator new_generator() { return at::make_generator<at::CPUGeneratorImpl>(); }

} // namespace

void check(cudaError_t code, const char *what) {
  TORCH_CHECK(code == cudaSuccess, "CUDA error: ", cudaGetErrorString(code), " (", cudaGetErrorName(code),
              ") from ", what);
}

void check_earlier_work() { check(cudaGetLastError(), "an earlier launch or call"); }

void require_device(c10::DeviceIndex index) {
  TORCH_CHECK(index == -1 || index == kOnlyDevice,
              "CUDA error: invalid device ordinal: there is one emulated GPU, "
              "cuda:0, and no cuda:",
              int(index));
}

extern "C" {

/// Writes the six numbers of MemoryUse::Totals; ladder/call/torch/memory.py reads them.
void ladder_torch_memory_use(std::int64_t *totals) {
  const MemoryUse::Totals now = memory_use().totals();
  for (const std::int64_t number : {now.allocated, now.peak, now.ever_allocated, now.allocations,
                                    now.peak_allocations, now.ever_allocations})
    *totals++ = number;
}

void ladder_torch_reset_peak_memory() { memory_use().reset_peak(); }
}

c10::Stream current_stream() { return stream_of(current_handle); }

c10::Stream exchange_stream(c10::Stream stream) {
  return stream_of(std::exchange(current_handle, handle_of(stream)));
}

} // namespace ladder::torch_device

namespace at {

using namespace ladder::torch_device;

/// torch creates it by the name of the class.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex current_device() const override { return kOnlyDevice; }
  DeviceIndex getCurrentDevice() const override { return kOnlyDevice; }
  void setCurrentDevice(DeviceIndex index) const override { require_device(index); }
  DeviceIndex exchangeDevice(DeviceIndex index) const override { return require_device(index), kOnlyDevice; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return kOnlyDevice; }
  void deviceSynchronize(DeviceIndex) const override {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  Device getDeviceFromPtr(void *) const override { return only_device(); }
  bool isPinnedPtr(const void *data) const override {
    cudaPointerAttributes found;
    return cudaPointerGetAttributes(&found, data) == cudaSuccess && found.type == cudaMemoryTypeHost;
  }
  Allocator *getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  Allocator *getCUDADeviceAllocator() const override { return c10::GetAllocator(c10::DeviceType::CUDA); }
  Generator getNewGenerator(DeviceIndex) const override { return new_generator(); }
  const Generator &getDefaultGenerator(DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  std::string showConfig() const override { return "CUDA emulated on the CPU"; }
};

REGISTER_CUDA_HOOKS(CUDAHooks);

} // namespace at

namespace {
ladder::torch_device::DeviceAllocator device_allocator;
}
namespace c10 {
REGISTER_ALLOCATOR(DeviceType::CUDA, &device_allocator)
}
namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, ladder::torch_device::DeviceGuard);
}
