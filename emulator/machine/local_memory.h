// Local memory of a warp's threads: a separate array each, which grows with calls.
#pragma once

#include <cstdint>
#include <vector>

namespace ladder::machine {

inline constexpr std::uint64_t kMaxLocalBytes = 512 * 1024; // per thread, as on hardware

class LocalMemory {
public:
  /// Host pointer to a lane's byte. Throws out_of_bounds if the access ends above `top`.
  std::uint8_t *at(int lane, std::uint64_t address, std::uint64_t bytes, std::uint64_t top);
  /// Distance between the same address in neighbouring lanes.
  std::uint64_t stride() const { return capacity_; }

private:
  std::vector<std::uint8_t> bytes_; ///< [lane][capacity_]
  std::uint64_t capacity_ = 0;
};

} // namespace ladder::machine
