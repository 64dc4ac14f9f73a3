// Local memory of a warp's threads: each has bytes of its own, which grow with the calls.
#pragma once

#include <cstdint>
#include <vector>

namespace ladder::machine {

inline constexpr std::uint64_t kMaxLocalBytes = 512 * 1024; // a thread, as on hardware

class LocalMemory {
public:
  /// A lane's byte. Accesses end below `top`; throws out_of_bounds.
  std::uint8_t *at(int lane, std::uint64_t address, std::uint64_t bytes, std::uint64_t top);
  /// From a lane's byte to the next lane's byte at the same address.
  std::uint64_t stride() const { return capacity_; }

private:
  std::vector<std::uint8_t> bytes_; ///< [lane][capacity_]
  std::uint64_t capacity_ = 0;
};

} // namespace ladder::machine
