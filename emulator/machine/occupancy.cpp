#include "machine/occupancy.h"

#include <algorithm>

namespace ladder::machine {

namespace {

constexpr std::uint64_t kSharedGranularity = 128; // bytes; allocation unit of shared memory
constexpr int kRegisterGranularity = 8;

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }

} // namespace

int registers_per_thread(const VirtualGpu &gpu) {
  const int most = int(gpu.registers_per_multiprocessor) / gpu.max_threads_per_multiprocessor;
  return most / kRegisterGranularity * kRegisterGranularity;
}

int blocks_per_multiprocessor(const VirtualGpu &gpu, const Code &code, std::uint64_t threads,
                              std::uint64_t dynamic_shared_bytes) {
  if (threads == 0 || threads > std::uint64_t(kMaxThreadsPerBlock))
    return 0;
  if (dynamic_shared_bytes > gpu.shared_bytes_per_block_opt_in)
    return 0;
  const std::uint64_t own = dynamic_shared_bytes ? code.layout.dynamic_shared_offset + dynamic_shared_bytes
                                                 : code.layout.static_shared_bytes;
  if (own > gpu.shared_bytes_per_block_opt_in)
    return 0;
  const std::uint64_t warps = (threads + 31) / 32;
  std::uint64_t blocks =
      std::min<std::uint64_t>(std::uint64_t(gpu.max_blocks_per_multiprocessor),
                              std::uint64_t(gpu.max_threads_per_multiprocessor) / 32 / warps);
  const std::uint64_t shared = round_up(own + gpu.reserved_shared_bytes_per_block, kSharedGranularity);
  if (shared)
    blocks = std::min<std::uint64_t>(blocks, gpu.shared_bytes_per_multiprocessor / shared);
  return int(blocks);
}

std::uint64_t available_dynamic_shared(const VirtualGpu &gpu, const Code &code, int blocks) {
  if (blocks <= 0)
    return 0;
  const std::uint64_t share =
      gpu.shared_bytes_per_multiprocessor / std::uint64_t(blocks) / kSharedGranularity * kSharedGranularity;
  const std::uint64_t taken = gpu.reserved_shared_bytes_per_block + code.layout.dynamic_shared_offset;
  const std::uint64_t most =
      gpu.shared_bytes_per_block_opt_in -
      std::min<std::uint64_t>(gpu.shared_bytes_per_block_opt_in, code.layout.dynamic_shared_offset);
  return share <= taken ? 0 : std::min(share - taken, most);
}

} // namespace ladder::machine
