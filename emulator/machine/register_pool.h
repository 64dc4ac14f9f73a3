// The register pool of setmaxnreg: a warp releases registers to its block's pool, from which another warp
// takes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ladder::machine {

class RegisterPool {
public:
  /// `registers` per thread at launch; 0 if the kernel is compiled without a register limit, in which case
  /// ptxas ignores setmaxnreg (C7508).
  RegisterPool(std::uint32_t registers, std::size_t warps) : at_launch_(registers), held_(warps, registers) {}

  bool is_ignored() const { return at_launch_ == 0; }
  std::uint32_t at_launch() const { return at_launch_; }
  std::uint32_t free() const { return free_; } ///< per-thread registers, times 32
  std::uint32_t of(int warp) const { return held_[std::size_t(warp)]; }
  bool can_resize(int warp, std::uint32_t registers) const {
    return registers <= of(warp) || (registers - of(warp)) * kLanes <= free_;
  }
  void resize(int warp, std::uint32_t registers) {
    free_ = free_ + of(warp) * kLanes - registers * kLanes;
    held_[std::size_t(warp)] = registers;
  }

private:
  static constexpr std::uint32_t kLanes = 32;
  std::uint32_t at_launch_, free_ = 0;
  std::vector<std::uint32_t> held_;
};

/// Registers that ptxas gives each thread of a kernel with setmaxnreg: all that __launch_bounds__ allows; 0
/// without launch bounds.
inline std::uint32_t registers_at_launch(std::uint32_t registers_per_multiprocessor,
                                         std::uint64_t max_threads, unsigned min_blocks) {
  constexpr std::uint64_t kWarp = 32, kStep = 8, kMost = 255;
  if (max_threads == 0)
    return 0;
  const std::uint64_t threads = (max_threads + kWarp - 1) / kWarp * kWarp * std::max(1u, min_blocks);
  return std::uint32_t(std::min(registers_per_multiprocessor / threads, kMost) / kStep * kStep);
}

} // namespace ladder::machine
