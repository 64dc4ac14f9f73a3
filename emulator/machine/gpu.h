// The virtual GPUs: their limits, and what a program is told about its device.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ladder::machine {

/// Properties of one GPU, from the CUDA C++ Programming Guide, "Compute Capabilities", and the product's data
/// sheet.
struct VirtualGpu {
  std::string_view arch; ///< "sm_80"
  std::string_view name; ///< the product it represents
  int major, minor;
  int multiprocessors;
  std::uint32_t shared_bytes_per_block;        ///< without opting in
  std::uint32_t shared_bytes_per_block_opt_in; ///< after cudaFuncSetAttribute
  std::uint32_t shared_bytes_per_multiprocessor;
  /// At the start of the block's shared window (1 KiB since sm_80).
  std::uint32_t reserved_shared_bytes_per_block;
  std::uint32_t registers_per_multiprocessor;
  int max_threads_per_multiprocessor;
  int max_blocks_per_multiprocessor;
  std::uint64_t global_bytes;
  std::uint64_t l2_bytes;
  int clock_khz, memory_clock_khz, memory_bus_bits;
};

inline constexpr int kMaxThreadsPerBlock = 1024;

std::span<const VirtualGpu> virtual_gpus();

/// The GPU with this arch ("sm_80", also "80" and "8.0"); nullptr if there is none.
const VirtualGpu *find_gpu(std::string_view arch);

} // namespace ladder::machine
