#pragma once

#include <cstdint>

namespace ladder::program {

/// Rounds `value` up to a multiple of `alignment`, a power of two.
inline std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

} // namespace ladder::program
