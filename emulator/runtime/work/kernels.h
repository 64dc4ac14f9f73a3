// A registered kernel on the current GPU.
#pragma once

#include "runtime/work/registry.h"

#include <cstdint>

namespace ladder::runtime {

/// Finds a kernel by host function or handle; throws CudaError(cudaErrorInvalidDeviceFunction).
RegisteredKernel &find_kernel(const void *function);

class KernelOnDevice {
public:
  explicit KernelOnDevice(const RegisteredKernel &kernel);

  const std::shared_ptr<const machine::Code> &code() const { return code_; }
  const program::Function &entry() const;
  std::uint64_t static_shared_bytes() const { return code_->layout.static_shared_bytes; }
  /// The most dynamic shared memory that the GPU can give it.
  std::uint64_t largest_dynamic_shared() const;
  /// What a launch may request now: what the kernel opted in to, else the rest of 48 KiB.
  std::uint64_t dynamic_shared_limit() const;

private:
  const RegisteredKernel &kernel_;
  std::shared_ptr<const machine::Code> code_;
};

} // namespace ladder::runtime
