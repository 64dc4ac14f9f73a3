#include "machine/gpu.h"

#include <string>

namespace ladder::machine {

namespace {

constexpr std::uint64_t kGiB = 1024ull * 1024 * 1024;
constexpr std::uint64_t kMiB = 1024ull * 1024;

// clang-format off
constexpr VirtualGpu kGpus[] = {
    {.arch = "sm_75", .name = "Tesla T4", .major = 7, .minor = 5, .multiprocessors = 40,
     .shared_bytes_per_block = 48 * 1024, .shared_bytes_per_block_opt_in = 64 * 1024,
     .shared_bytes_per_multiprocessor = 64 * 1024, .reserved_shared_bytes_per_block = 0,
     .registers_per_multiprocessor = 65536, .max_threads_per_multiprocessor = 1024,
     .max_blocks_per_multiprocessor = 16, .global_bytes = 16 * kGiB, .l2_bytes = 4 * kMiB,
     .clock_khz = 1590000, .memory_clock_khz = 5001000, .memory_bus_bits = 256},
    {.arch = "sm_80", .name = "NVIDIA A100-SXM4-40GB", .major = 8, .minor = 0, .multiprocessors = 108,
     .shared_bytes_per_block = 48 * 1024, .shared_bytes_per_block_opt_in = 163 * 1024,
     .shared_bytes_per_multiprocessor = 164 * 1024, .reserved_shared_bytes_per_block = 1024,
     .registers_per_multiprocessor = 65536, .max_threads_per_multiprocessor = 2048,
     .max_blocks_per_multiprocessor = 32, .global_bytes = 40 * kGiB, .l2_bytes = 40 * kMiB,
     .clock_khz = 1410000, .memory_clock_khz = 1215000, .memory_bus_bits = 5120},
    {.arch = "sm_86", .name = "NVIDIA GeForce RTX 3090", .major = 8, .minor = 6, .multiprocessors = 82,
     .shared_bytes_per_block = 48 * 1024, .shared_bytes_per_block_opt_in = 99 * 1024,
     .shared_bytes_per_multiprocessor = 100 * 1024, .reserved_shared_bytes_per_block = 1024,
     .registers_per_multiprocessor = 65536, .max_threads_per_multiprocessor = 1536,
     .max_blocks_per_multiprocessor = 16, .global_bytes = 24 * kGiB, .l2_bytes = 6 * kMiB,
     .clock_khz = 1695000, .memory_clock_khz = 9751000, .memory_bus_bits = 384},
    {.arch = "sm_89", .name = "NVIDIA GeForce RTX 4090", .major = 8, .minor = 9, .multiprocessors = 128,
     .shared_bytes_per_block = 48 * 1024, .shared_bytes_per_block_opt_in = 99 * 1024,
     .shared_bytes_per_multiprocessor = 100 * 1024, .reserved_shared_bytes_per_block = 1024,
     .registers_per_multiprocessor = 65536, .max_threads_per_multiprocessor = 1536,
     .max_blocks_per_multiprocessor = 24, .global_bytes = 24 * kGiB, .l2_bytes = 72 * kMiB,
     .clock_khz = 2520000, .memory_clock_khz = 10501000, .memory_bus_bits = 384},
    {.arch = "sm_90", .name = "NVIDIA H200", .major = 9, .minor = 0, .multiprocessors = 132,
     .shared_bytes_per_block = 48 * 1024, .shared_bytes_per_block_opt_in = 227 * 1024,
     .shared_bytes_per_multiprocessor = 228 * 1024, .reserved_shared_bytes_per_block = 1024,
     .registers_per_multiprocessor = 65536, .max_threads_per_multiprocessor = 2048,
     .max_blocks_per_multiprocessor = 32, .global_bytes = 140 * kGiB, .l2_bytes = 50 * kMiB,
     .clock_khz = 1980000, .memory_clock_khz = 3201000, .memory_bus_bits = 6144},
    {.arch = "sm_90a", .name = "NVIDIA H200", .major = 9, .minor = 0, .multiprocessors = 132,
     .shared_bytes_per_block = 48 * 1024, .shared_bytes_per_block_opt_in = 227 * 1024,
     .shared_bytes_per_multiprocessor = 228 * 1024, .reserved_shared_bytes_per_block = 1024,
     .registers_per_multiprocessor = 65536, .max_threads_per_multiprocessor = 2048,
     .max_blocks_per_multiprocessor = 32, .global_bytes = 140 * kGiB, .l2_bytes = 50 * kMiB,
     .clock_khz = 1980000, .memory_clock_khz = 3201000, .memory_bus_bits = 6144},
    // The B200's L2, clocks and memory are its data sheet's.
    {.arch = "sm_100a", .name = "NVIDIA B200", .major = 10, .minor = 0, .multiprocessors = 148,
     .shared_bytes_per_block = 48 * 1024, .shared_bytes_per_block_opt_in = 227 * 1024,
     .shared_bytes_per_multiprocessor = 228 * 1024, .reserved_shared_bytes_per_block = 1024,
     .registers_per_multiprocessor = 65536, .max_threads_per_multiprocessor = 2048,
     .max_blocks_per_multiprocessor = 32, .global_bytes = 180 * kGiB, .l2_bytes = 126 * kMiB,
     .clock_khz = 1965000, .memory_clock_khz = 3996000, .memory_bus_bits = 8192},
};
// clang-format on

} // namespace

std::span<const VirtualGpu> virtual_gpus() { return kGpus; }

const VirtualGpu *find_gpu(std::string_view arch) {
  std::string digits;
  if (arch.starts_with("sm_") || arch.starts_with("SM_"))
    arch.remove_prefix(3);
  else if (arch.starts_with("compute_"))
    arch.remove_prefix(8);
  for (const char c : arch)
    if (c != '.')
      digits += c;
  for (const VirtualGpu &gpu : kGpus)
    if (gpu.arch.substr(3) == digits)
      return &gpu;
  return nullptr;
}

} // namespace ladder::machine
